"""Machines, slots and the runs that hold them: facts for the planner (`snapshot`), the only writer of grants (`scheduling`), machines
(`fleet`), and accounts of use (`accounting`, `utilization`)."""
