package main

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// render writes a value so that two values look alike only if they are the same, types included.
func render(value ref.Val) string {
	switch v := value.(type) {
	case types.Null:
		return "null"
	case types.Bool, types.Int:
		return fmt.Sprint(v)
	case types.Uint:
		return fmt.Sprintf("%du", uint64(v))
	case types.Double:
		return "double " + string(v.ConvertToType(types.StringType).(types.String))
	case types.String:
		text, err := json.Marshal(string(v))
		check(err)
		return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(text))
	case types.Bytes:
		return fmt.Sprintf("bytes %x", []byte(v))
	case types.Timestamp:
		return "timestamp " + v.UTC().Format(time.RFC3339Nano)
	case types.Duration:
		return "duration " + v.Duration.String()
	case *types.Optional:
		if !v.HasValue() {
			return "none"
		}
		return "optional " + render(v.GetValue())
	case traits.Lister:
		var parts []string
		for it := v.Iterator(); it.HasNext() == types.True; {
			parts = append(parts, render(it.Next()))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case traits.Mapper:
		var parts []string
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			parts = append(parts, render(key)+": "+render(v.Get(key)))
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case ref.Type:
		return "type " + v.TypeName()
	}
	return "a " + value.Type().TypeName()
}
