"""What `ranks.py` measures, figure by figure, and the page that it writes."""
