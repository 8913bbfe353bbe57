"""The shipped demo model: its emoji pictures, captions, tokenizer and training stages."""
