package gpu

import _ "embed" // embeds the server

// Server is the source of the PyTorch server. Its head describes it.
//
//go:embed server.py
var Server []byte
