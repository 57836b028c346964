"""The state of a training: taken out and put back (`capture`), handed to a newcomer (`transfer`), written down (`checkpoint`, and by
workers alone `emergency_checkpoint`; `model_files` are for people; `durable` is how files are written), and compared (`digest`)."""
