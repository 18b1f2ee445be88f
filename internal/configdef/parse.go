package configdef

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ValueError says why a value is not valid for a key. Its text has the form that Kafka's clients and
// tools show: "Invalid value V for configuration K: reason".
type ValueError struct {
	Key, Value, Reason string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("Invalid value %s for configuration %s: %s", e.Value, e.Key, e.Reason)
}

// Parse converts a text value to its Go form and validates it. The results are bool, string (STRING,
// CLASS, PASSWORD), int32 (INT), int16 (SHORT), int64 (LONG), float64 (DOUBLE) or []string (LIST, blanks
// around elements removed; "" is the empty list). The error is a *ValueError.
func (k *Key) Parse(text string) (any, error) {
	v, reason := k.convert(text)
	shown := text
	if reason == "" && k.validate != nil {
		switch parsed := v.(type) { // Kafka shows what it parsed
		case []string:
			if k.valid == replicaPairs {
				shown = "[" + strings.Join(parsed, ", ") + "]"
			}
		case float64:
			shown = formatDouble(parsed)
		}
		reason = k.validate(v)
	}
	if reason != "" {
		if k.Sensitive {
			shown = "[hidden]"
		}
		return nil, &ValueError{Key: k.Name, Value: shown, Reason: reason}
	}
	return v, nil
}

// DefaultValue is the parsed default; nil when the default is null or the key is required.
func (k *Key) DefaultValue() any {
	if k.Default == nil {
		return nil
	}
	v, _ := k.convert(*k.Default)
	return v
}

func (k *Key) convert(text string) (any, string) {
	trimmed := strings.TrimSpace(text)
	switch k.Type {
	case Boolean:
		switch strings.ToLower(trimmed) {
		case "true":
			return true, ""
		case "false":
			return false, ""
		}
		return nil, "Expected value to be either true or false"
	case Int:
		n, err := strconv.ParseInt(trimmed, 10, 32)
		return int32(n), numberReason(err, "INT")
	case Short:
		n, err := strconv.ParseInt(trimmed, 10, 16)
		return int16(n), numberReason(err, "SHORT")
	case Long:
		n, err := strconv.ParseInt(trimmed, 10, 64)
		return n, numberReason(err, "LONG")
	case Double:
		n, err := strconv.ParseFloat(trimmed, 64)
		return n, numberReason(err, "DOUBLE")
	case List:
		if k.distinct {
			return unique(splitList(trimmed)), ""
		}
		return splitList(trimmed), ""
	case Password:
		return text, ""
	default:
		return trimmed, ""
	}
}

func numberReason(err error, kind string) string {
	if err != nil {
		return "Not a number of type " + kind
	}
	return ""
}

// unique keeps the first of equal elements.
func unique(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}

// splitList splits at commas and removes blanks around the elements, as Kafka's LIST type does.
func splitList(text string) []string {
	if text == "" {
		return []string{}
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// Format gives the canonical text of a parsed value, as DescribeConfigs shows it.
func Format(v any) string {
	switch v := v.(type) {
	case []string:
		return strings.Join(v, ",")
	case float64:
		return formatDouble(v)
	case nil:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// formatDouble writes a double as Java's Double.toString does: at least one digit after the point, and
// exponents as 1.0E10.
func formatDouble(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	if a := math.Abs(v); v != 0 && (a >= 1e7 || a < 1e-3) {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'E', -1, 64), "E")
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		exponent = strings.TrimPrefix(exponent, "+")
		negative := strings.HasPrefix(exponent, "-")
		exponent = strings.TrimLeft(strings.TrimPrefix(exponent, "-"), "0")
		if negative {
			exponent = "-" + exponent
		}
		return mantissa + "E" + exponent
	}
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
