"""False alarms and hits of the doctor, family by family."""
