package options

const windowsPaths = true
