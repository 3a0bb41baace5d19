package strictyaml

import (
	"bytes"
	"encoding/json"

	"go.yaml.in/yaml/v3"
)

// FromJSON writes a JSON document as YAML: keys in alphabetical order, two spaces a level,
// lists not indented. The same document always gives the same bytes.
func FromJSON(document []byte) ([]byte, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber() // a float64 hasn't all integers
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(withNumbers(value)); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// withNumbers gives each json.Number, which YAML would quote, as a number as it is written.
func withNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = withNumbers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = withNumbers(v[i])
		}
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	}
	return value
}
