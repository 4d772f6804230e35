"""The pages of the app; each file here draws one, and `ui` holds what they share."""
