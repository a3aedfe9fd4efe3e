package columnar

import (
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// These types hold the part of a user's file metadata that the reader needs.
// Fields that the format requires but the reader does not need may be absent.
// https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift

type fileMeta struct {
	Schema    thrift.Slice[format.SchemaElement] `thrift:"2,required"`
	RowGroups thrift.Slice[groupMeta]            `thrift:"4,required"`
	KeyValues thrift.Slice[keyValue]             `thrift:"5,optional"`
}

type keyValue struct {
	Key   string `thrift:"1,required"`
	Value string `thrift:"2,optional"` // some writers have keys without a value
}

type groupMeta struct {
	Columns thrift.Slice[columnMeta] `thrift:"1,required"`
	NumRows int64                    `thrift:"3,required"`
}

type columnMeta struct {
	FilePath  string                      `thrift:"1,optional"`
	Chunk     thrift.Null[chunkMeta]      `thrift:"3,optional"`
	Crypto    format.ColumnCryptoMetaData `thrift:"8,optional"`
	Encrypted []byte                      `thrift:"9,optional"`
}

type chunkMeta struct {
	Type                 format.Type             `thrift:"1,required"`
	Codec                format.CompressionCodec `thrift:"4,required"`
	NumValues            int64                   `thrift:"5,required"`
	TotalCompressedSize  int64                   `thrift:"7,required"`
	DataPageOffset       int64                   `thrift:"9,required"`
	DictionaryPageOffset int64                   `thrift:"11,optional"`
}

type pageMeta struct {
	Type                 format.PageType             `thrift:"1,required"`
	UncompressedPageSize int32                       `thrift:"2,required"`
	CompressedPageSize   int32                       `thrift:"3,required"`
	CRC                  thrift.Null[int32]          `thrift:"4,optional"`
	Data                 thrift.Null[dataPageMeta]   `thrift:"5,optional"`
	Dictionary           thrift.Null[dictionaryMeta] `thrift:"7,optional"`
	DataV2               thrift.Null[dataPageV2Meta] `thrift:"8,optional"`
}

type dataPageMeta struct {
	NumValues       int32           `thrift:"1,required"`
	Encoding        format.Encoding `thrift:"2,required"`
	DefinitionLevel format.Encoding `thrift:"3,required"`
	RepetitionLevel format.Encoding `thrift:"4,required"`
}

type dictionaryMeta struct {
	NumValues int32           `thrift:"1,required"`
	Encoding  format.Encoding `thrift:"2,required"`
}

type dataPageV2Meta struct {
	NumValues        int32             `thrift:"1,required"`
	NumNulls         int32             `thrift:"2,required"`
	NumRows          int32             `thrift:"3,required"`
	Encoding         format.Encoding   `thrift:"4,required"`
	DefinitionLength int32             `thrift:"5,required"`
	RepetitionLength int32             `thrift:"6,required"`
	IsCompressed     thrift.Null[bool] `thrift:"7,optional"`
}

// decodeThrift decodes a structure that scanThrift has checked.
func decodeThrift(b []byte, into any) error {
	return thrift.Unmarshal(new(thrift.CompactProtocol), b, into)
}
