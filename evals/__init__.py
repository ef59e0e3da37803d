"""Fixed sets of questions, rerun on a schedule; statistics that tell regression from noise."""
