package columnar

import (
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// These types hold the metadata of a user's file that the reader needs. If the format
// requires a field that the reader does not need, a file without this field is accepted.
// https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift

// fileMeta is the footer of a file.
type fileMeta struct {
	Schema    thrift.Slice[format.SchemaElement] `thrift:"2,required"`
	RowGroups thrift.Slice[groupMeta]            `thrift:"4,required"`
	KeyValues thrift.Slice[keyValue]             `thrift:"5,optional"`
}

// keyValue is an entry of the key-value metadata.
type keyValue struct {
	Key   string `thrift:"1,required"`
	Value string `thrift:"2,optional"` // some programs write keys without a value
}

// groupMeta describes a row group.
type groupMeta struct {
	Columns thrift.Slice[columnMeta] `thrift:"1,required"`
	NumRows int64                    `thrift:"3,required"`
}

// columnMeta says where the column chunk of a row group is, and whether it is
// encrypted.
type columnMeta struct {
	FilePath  string                      `thrift:"1,optional"`
	Chunk     thrift.Null[chunkMeta]      `thrift:"3,optional"`
	Crypto    format.ColumnCryptoMetaData `thrift:"8,optional"`
	Encrypted []byte                      `thrift:"9,optional"`
}

// chunkMeta describes the pages of a column chunk.
type chunkMeta struct {
	Type                 format.Type             `thrift:"1,required"`
	Codec                format.CompressionCodec `thrift:"4,required"`
	NumValues            int64                   `thrift:"5,required"`
	TotalCompressedSize  int64                   `thrift:"7,required"`
	DataPageOffset       int64                   `thrift:"9,required"`
	DictionaryPageOffset int64                   `thrift:"11,optional"`
}

// pageMeta is the header of a page.
type pageMeta struct {
	Type                 format.PageType             `thrift:"1,required"`
	UncompressedPageSize int32                       `thrift:"2,required"`
	CompressedPageSize   int32                       `thrift:"3,required"`
	CRC                  thrift.Null[int32]          `thrift:"4,optional"`
	Data                 thrift.Null[dataPageMeta]   `thrift:"5,optional"`
	Dictionary           thrift.Null[dictionaryMeta] `thrift:"7,optional"`
	DataV2               thrift.Null[dataPageV2Meta] `thrift:"8,optional"`
}

// dataPageMeta is the part of the header for a data page of version 1.
type dataPageMeta struct {
	NumValues       int32           `thrift:"1,required"`
	Encoding        format.Encoding `thrift:"2,required"`
	DefinitionLevel format.Encoding `thrift:"3,required"`
	RepetitionLevel format.Encoding `thrift:"4,required"`
}

// dictionaryMeta is the part of the header for a dictionary page.
type dictionaryMeta struct {
	NumValues int32           `thrift:"1,required"`
	Encoding  format.Encoding `thrift:"2,required"`
}

// dataPageV2Meta is the part of the header for a data page of version 2.
type dataPageV2Meta struct {
	NumValues        int32             `thrift:"1,required"`
	NumNulls         int32             `thrift:"2,required"`
	NumRows          int32             `thrift:"3,required"`
	Encoding         format.Encoding   `thrift:"4,required"`
	DefinitionLength int32             `thrift:"5,required"`
	RepetitionLength int32             `thrift:"6,required"`
	IsCompressed     thrift.Null[bool] `thrift:"7,optional"`
}

// decodeThrift decodes a structure. checkThrift must have checked b before.
func decodeThrift(b []byte, into any) error {
	return thrift.Unmarshal(new(thrift.CompactProtocol), b, into)
}
