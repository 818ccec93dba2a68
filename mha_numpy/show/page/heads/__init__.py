"""The report of heads: what each head of a model does on some texts, in one page."""
