"""The state of a training: taken out and put back (`capture`), handed to a newcomer (`transfer`), written down (`checkpoint`, and by
workers alone `emergency_checkpoint`), and compared (`digest`)."""
