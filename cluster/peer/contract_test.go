package peer_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/rowmill/rowmill/cluster/peer/peerv1"
)

// contract is the file that says what nodes ask each other.
const contract = "rowmill/peer/v1/node.proto"

// TestCodeIsGenerated holds that the generated code is of the contract as it stands.
func TestCodeIsGenerated(t *testing.T) {
	t.Parallel()
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"proto"}})}
	files, err := compiler.Compile(t.Context(), contract)
	if err != nil {
		t.Fatal(err)
	}
	source, generated := protodesc.ToFileDescriptorProto(files[0]), protodesc.ToFileDescriptorProto(peerv1.File_rowmill_peer_v1_node_proto)
	if diff := cmp.Diff(source, generated, protocmp.Transform()); diff != "" {
		t.Errorf("make contract (-source +generated):\n%s", diff)
	}
}

// released is the contract of the version before, as buf build writes it.
func released(t *testing.T) *descriptorpb.FileDescriptorProto {
	t.Helper()
	raw, err := os.ReadFile("testdata/released.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(set.GetFile(), func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == contract })
	if i < 0 {
		t.Fatalf("testdata/released.binpb has no %s", contract)
	}
	return set.GetFile()[i]
}

// TestContractIsKept holds that this version understands what the version before says,
// and is understood: make contract asks buf, which looks at more.
func TestContractIsKept(t *testing.T) {
	t.Parallel()
	before, err := protodesc.NewFile(released(t), protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range breaks(before, peerv1.File_rowmill_peer_v1_node_proto) {
		t.Error(broken)
	}
}

// breaks says what of a contract another version of it does not keep.
func breaks(before, now protoreflect.FileDescriptor) (broken []string) {
	say := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for i := range before.Messages().Len() {
		was := before.Messages().Get(i)
		is := now.Messages().ByName(was.Name())
		if is == nil {
			say("message %s is gone", was.Name())
			continue
		}
		for i := range was.Fields().Len() {
			was := was.Fields().Get(i)
			if is := is.Fields().ByNumber(was.Number()); is == nil {
				say("%s is gone", was.FullName())
			} else if form(was) != form(is) {
				say("%s was %s and is %s", was.FullName(), form(was), form(is))
			}
		}
	}
	for i := range before.Enums().Len() {
		was := before.Enums().Get(i)
		is := now.Enums().ByName(was.Name())
		if is == nil {
			say("enum %s is gone", was.Name())
			continue
		}
		for i := range was.Values().Len() {
			was := was.Values().Get(i)
			if is := is.Values().ByNumber(was.Number()); is == nil || is.Name() != was.Name() {
				say("%s is no longer %d", was.FullName(), was.Number())
			}
		}
	}
	for i := range before.Services().Len() {
		was := before.Services().Get(i)
		is := now.Services().ByName(was.Name())
		if is == nil {
			say("service %s is gone", was.Name())
			continue
		}
		for i := range was.Methods().Len() {
			was := was.Methods().Get(i)
			is := is.Methods().ByName(was.Name())
			if is == nil || is.Input().FullName() != was.Input().FullName() || is.Output().FullName() != was.Output().FullName() ||
				is.IsStreamingClient() != was.IsStreamingClient() || is.IsStreamingServer() != was.IsStreamingServer() {
				say("%s is gone, or another", was.FullName())
			}
		}
	}
	return broken
}

// form is all that must stay of a field.
func form(f protoreflect.FieldDescriptor) string {
	of := f.Kind().String()
	switch {
	case f.IsMap():
		return fmt.Sprintf("%s: map of %s to %s", f.Name(), form(f.MapKey()), form(f.MapValue()))
	case f.Message() != nil:
		of = string(f.Message().FullName())
	case f.Enum() != nil:
		of = string(f.Enum().FullName())
	}
	return fmt.Sprintf("%s: %v %s, presence %v", f.Name(), f.Cardinality(), of, f.HasPresence())
}

// TestBreaksAreFound breaks the contract on purpose.
func TestBreaksAreFound(t *testing.T) {
	t.Parallel()
	message := func(f *descriptorpb.FileDescriptorProto, name string) *descriptorpb.DescriptorProto {
		i := slices.IndexFunc(f.GetMessageType(), func(m *descriptorpb.DescriptorProto) bool { return m.GetName() == name })
		return f.GetMessageType()[i]
	}
	for name, c := range map[string]struct {
		change func(f *descriptorpb.FileDescriptorProto)
		want   string
	}{
		"nothing": {func(*descriptorpb.FileDescriptorProto) {}, ""},
		"more": {func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "DismissRequest")
			m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{Name: proto.String("why"), Number: proto.Int32(3), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()})
		}, ""},
		"a field gone": {func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "DismissRequest")
			m.Field = m.GetField()[:1]
		}, "DismissRequest.epoch is gone"},
		"another type": {func(f *descriptorpb.FileDescriptorProto) {
			message(f, "DismissRequest").GetField()[1].Type = descriptorpb.FieldDescriptorProto_TYPE_SINT64.Enum()
		}, "int64"},
		"another name": {func(f *descriptorpb.FileDescriptorProto) {
			message(f, "DismissRequest").GetField()[1].Name = proto.String("term")
		}, "epoch"},
		"another number": {func(f *descriptorpb.FileDescriptorProto) {
			message(f, "DismissRequest").GetField()[1].Number = proto.Int32(7)
		}, "epoch is gone"},
		"a list": {func(f *descriptorpb.FileDescriptorProto) {
			message(f, "DismissRequest").GetField()[1].Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}, "repeated"},
		"a reason gone": {func(f *descriptorpb.FileDescriptorProto) {
			e := f.GetEnumType()[0]
			e.Value = e.GetValue()[:len(e.GetValue())-1]
		}, "is no longer"},
		"a method gone": {func(f *descriptorpb.FileDescriptorProto) {
			s := f.GetService()[0]
			s.Method = s.GetMethod()[1:]
		}, "Invite is gone"},
		"a stream": {func(f *descriptorpb.FileDescriptorProto) {
			f.GetService()[0].GetMethod()[0].ServerStreaming = proto.Bool(true)
		}, "Invite is gone, or another"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := released(t)
			changed := proto.CloneOf(before)
			c.change(changed)
			was, err := protodesc.NewFile(before, protoregistry.GlobalFiles)
			if err != nil {
				t.Fatal(err)
			}
			is, err := protodesc.NewFile(changed, protoregistry.GlobalFiles)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(breaks(was, is), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
