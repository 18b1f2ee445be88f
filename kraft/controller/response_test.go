package controller

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/protocol"
)

// responseText prints what a response says: error names, messages, and values that are not nothing.
func responseText(resp kmsg.Response) string {
	var b strings.Builder
	b.WriteString("-> ")
	writeValue(&b, reflect.ValueOf(resp).Elem(), "")
	return strings.TrimRight(b.String(), " ") + "\n"
}

func writeValue(b *strings.Builder, v reflect.Value, indent string) {
	var nested []int
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case name == "Version" || name == "ThrottleMillis" || name == "UnknownTags":
		case name == "Configs":
			if f.Len() > 0 {
				fmt.Fprintf(b, "Configs:%d ", f.Len())
			}
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			nested = append(nested, i)
		case strings.HasSuffix(name, "ErrorCode"):
			if f.Int() != 0 {
				fmt.Fprintf(b, "%s ", protocol.ErrorName(int16(f.Int())))
			}
		case f.Kind() == reflect.Pointer:
			if !f.IsNil() {
				fmt.Fprintf(b, "%q ", f.Elem().Interface())
			}
		case f.Type() == reflect.TypeFor[[16]byte]():
			if !f.IsZero() {
				fmt.Fprintf(b, "%s ", shortID(f.Interface().([16]byte)))
			}
		case f.Kind() == reflect.String:
			fmt.Fprintf(b, "%s ", f.String())
		default:
			if !f.IsZero() || name == "Partition" {
				fmt.Fprintf(b, "%s:%v ", name, f.Interface())
			}
		}
	}
	for _, i := range nested {
		for j := range v.Field(i).Len() {
			b.WriteString("\n" + indent + "  ")
			writeValue(b, v.Field(i).Index(j), indent+"  ")
		}
	}
}
