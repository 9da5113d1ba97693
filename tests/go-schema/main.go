// Records what Kubernetes says of values by the schemas of custom resources: reads a file of cases, a JSON object with
// `schema` and `value` per line, and writes it again with what was told of each.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"log"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type testCase struct {
	Schema json.RawMessage `json:"schema"`
	Value  json.RawMessage `json:"value"`
	Told   []string        `json:"told"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: go run . FILE")
	}
	text, err := os.ReadFile(os.Args[1])
	check(err)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var c testCase
		check(json.Unmarshal(lines.Bytes(), &c))
		c.Told = told(c)
		check(encoder.Encode(c))
	}
	check(lines.Err())
	check(os.WriteFile(os.Args[1], out.Bytes(), 0o644))
}

// told is what the defaults of a definition are checked with.
func told(c testCase) []string {
	var value interface{}
	check(utiljson.Unmarshal(c.Value, &value))
	var given v1.JSONSchemaProps
	check(json.Unmarshal(c.Schema, &given))
	var internal apiextensions.JSONSchemaProps
	check(v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&given, &internal, nil))
	schema, err := structural.NewStructural(&internal)
	check(err)
	validator := validation.NewSchemaValidatorFromOpenAPI(schema.ToKubeOpenAPI())
	messages := []string{}
	for _, fault := range validation.ValidateCustomResource(field.NewPath("default"), value, validator) {
		messages = append(messages, fault.Error())
	}
	return messages
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
