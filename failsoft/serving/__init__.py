"""The processes behind `failsoft up`: supervisor, front and ops."""
