package gpu

import _ "embed" // the server is carried in the binary

// Server is the program of the PyTorch server; its head says what it is.
//
//go:embed server.py
var Server []byte
