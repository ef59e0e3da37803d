"""SLIs, burn rates, incidents in triage order, and the triggers that roll a version back."""
