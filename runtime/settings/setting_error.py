"""The fault of a setting, for those who want no more of the settings: it needs no library."""


class SettingError(ValueError):
    """A setting that cannot be; the message is one line that says what to write instead, or such a line for each of several."""
