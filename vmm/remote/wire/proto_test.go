package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	driverv1 "github.com/vmlet/vmlet/proto/vmlet/driver/v1"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// messages are this package's, by their names in the protocol.
func messages() map[string]any {
	return map[string]any{
		"Frame": Frame{}, "Error": Error{}, "Fault": Fault{},
		"NegotiateRequest": NegotiateRequest{}, "NegotiateResponse": NegotiateResponse{},
		"DescribeResponse": DescribeResponse{}, "MemoryCosts": MemoryCosts{},
		"DefaultsRequest": DefaultsRequest{}, "DefaultsResponse": DefaultsResponse{}, "Traits": Traits{},
		"ValidateRequest": ValidateRequest{}, "ValidateResponse": ValidateResponse{},
		"Launch": Launch{}, "User": User{}, "Image": Image{}, "PlanRequest": PlanRequest{}, "PlanResponse": PlanResponse{},
		"ManifestRequest": ManifestRequest{}, "ManifestResponse": ManifestResponse{}, "CheckImageRequest": CheckImageRequest{},
		"RefuseSaveRequest": RefuseSaveRequest{}, "RefuseSaveResponse": RefuseSaveResponse{},
		"RefuseSuspendRequest": RefuseSuspendRequest{}, "RefuseSuspendResponse": RefuseSuspendResponse{},
		"Plug": Plug{}, "PlanAttachRequest": PlanAttachRequest{}, "PlanAttachResponse": PlanAttachResponse{},
		"PlanDetachRequest": PlanDetachRequest{}, "PlanDetachResponse": PlanDetachResponse{},
		"StartRequest": StartRequest{}, "StartResponse": StartResponse{}, "ExplainRequest": ExplainRequest{}, "ExplainResponse": ExplainResponse{},
		"StopResponse": StopResponse{}, "SaveStateRequest": SaveStateRequest{}, "LoadStateRequest": LoadStateRequest{}, "EndingResponse": EndingResponse{},
		"VcpuThreadsResponse": VcpuThreadsResponse{}, "AttachRequest": AttachRequest{}, "DetachRequest": DetachRequest{}, "AwaitGoneRequest": AwaitGoneRequest{},
		"ExecRequest": ExecRequest{}, "ExecResponse": ExecResponse{}, "RebootRequest": RebootRequest{},
		"SetKeysRequest": SetKeysRequest{}, "SetPasswordRequest": SetPasswordRequest{},
		"WatchResponse": WatchResponse{}, "StatusResponse": StatusResponse{}, "DiskError": DiskError{}, "SetGuestTimeRequest": SetGuestTimeRequest{},
		"SampleResponse": SampleResponse{}, "DiskSample": DiskSample{}, "GuestMemory": GuestMemory{},
		"SizeResponse": SizeResponse{}, "SetVcpusRequest": SetVcpusRequest{}, "SetMemoryRequest": SetMemoryRequest{},
		"AskGuestResponse": AskGuestResponse{}, "InspectGuestResponse": InspectGuestResponse{}, "Guest": Guest{}, "GuestOs": GuestOS{},
		"GuestInterface": GuestInterface{}, "GuestCommand": GuestCommand{}, "GuestUser": GuestUser{}, "GuestFileSystem": GuestFileSystem{}, "GuestDisk": GuestDisk{},
		"ScreenshotRequest": ScreenshotRequest{}, "DialRequest": DialRequest{}, "ListenRequest": ListenRequest{}, "EventRequest": EventRequest{},
	}
}

// TestMessagesAreTheProtocols: each message of the protocol with fields is here, with the same
// fields, and ProtoJSON reads what is written here.
func TestMessagesAreTheProtocols(t *testing.T) {
	known := messages()
	all := driverv1.File_vmlet_driver_v1_driver_proto.Messages()
	for i := range all.Len() {
		d := all.Get(i)
		name := string(d.Name())
		if d.Fields().Len() == 0 {
			continue
		}
		m, has := known[name]
		if !has {
			t.Errorf("%s is not here", name)
			continue
		}
		delete(known, name)
		compareFields(t, name, reflect.TypeOf(m), d)
		written, err := json.Marshal(filled(reflect.TypeOf(m), 0).Interface())
		if err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(written, dynamicpb.NewMessage(d)); err != nil {
			t.Errorf("%s: %v: %s", name, err, written)
		}
	}
	for name := range known {
		t.Errorf("%s is here, and not in the protocol", name)
	}
}

func compareFields(t *testing.T, name string, m reflect.Type, d protoreflect.MessageDescriptor) {
	t.Helper()
	here := map[string]bool{}
	for i := range m.NumField() {
		field, _, _ := strings.Cut(m.Field(i).Tag.Get("json"), ",")
		here[field] = true
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i).JSONName()
		if !here[f] {
			t.Errorf("%s.%s is not here", name, f)
		}
		delete(here, f)
	}
	for f := range here {
		t.Errorf("%s.%s is here, and not in the protocol", name, f)
	}
}

// filled is a value with something in each field.
func filled(of reflect.Type, depth int) reflect.Value {
	v := reflect.New(of).Elem()
	switch {
	case of == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{}`))
	case of == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1, 5000).UTC()))
	case of.Kind() == reflect.Struct:
		for i := range of.NumField() {
			v.Field(i).Set(filled(of.Field(i).Type, depth+1))
		}
	case of.Kind() == reflect.Pointer:
		v.Set(reflect.New(of.Elem()))
		v.Elem().Set(filled(of.Elem(), depth+1))
	case of.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, filled(of.Elem(), depth+1)))
	case of.Kind() == reflect.String:
		v.SetString("x")
	case of.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	}
	return v
}

// TestMethodsHaveMessages: each call's request and response are named after it.
func TestMethodsHaveMessages(t *testing.T) {
	services := driverv1.File_vmlet_driver_v1_driver_proto.Services()
	for i := range services.Len() {
		for k := range services.Get(i).Methods().Len() {
			m := services.Get(i).Methods().Get(k)
			if string(m.Input().Name()) != string(m.Name())+"Request" {
				t.Errorf("%s takes %s", m.Name(), m.Input().Name())
			}
		}
	}
}
