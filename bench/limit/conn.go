package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// conn is a keep-alive connection with its buffers.
type conn struct {
	net     net.Conn
	address string
	in      *bufio.Reader
	request []byte // head and body
	body    []byte // of the request
	reply   []byte
}

func dial(ctx context.Context, address string) (*conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &conn{net: c, address: address, in: bufio.NewReaderSize(c, 16<<10)}, nil
}

// ask returns the answer to a text.
func (c *conn) ask(codec codec, text []byte) (answer, error) {
	c.body = codec.encode(c.body[:0], text)
	c.request = append(c.request[:0], "POST /v1/chat/completions HTTP/1.1\r\nHost: "...)
	c.request = append(c.request, c.address...)
	c.request = append(c.request, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.request = strconv.AppendInt(c.request, int64(len(c.body)), 10)
	c.request = append(c.request, "\r\n\r\n"...)
	c.request = append(c.request, c.body...)
	if _, err := c.net.Write(c.request); err != nil {
		return answer{}, fmt.Errorf("send request: %w", err)
	}
	if err := c.readReply(); err != nil {
		return answer{}, fmt.Errorf("read reply: %w", err)
	}
	return codec.decode(c.reply)
}

var (
	okLine     = []byte("HTTP/1.1 200 ")
	lengthName = []byte("content-length:")
	errNoBody  = errors.New("reply has no content length")
)

// readReply reads a response and stores its body in reply.
func (c *conn) readReply() error {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, okLine) {
		return fmt.Errorf("status line %q", line)
	}
	length := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if len(line) > len(lengthName) && bytes.EqualFold(line[:len(lengthName)], lengthName) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthName):]))); err != nil {
				return fmt.Errorf("content length: %w", err)
			}
		}
	}
	if length < 0 {
		return errNoBody
	}
	if cap(c.reply) < length {
		c.reply = make([]byte, length)
	}
	c.reply = c.reply[:length]
	_, err = io.ReadFull(c.in, c.reply)
	return err
}
