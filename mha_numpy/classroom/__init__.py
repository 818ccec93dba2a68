"""Assignments made, graded in isolation, and fed back."""
