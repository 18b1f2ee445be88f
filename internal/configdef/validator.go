package configdef

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// validator returns why a parsed value is not valid, or "".
type validator func(v any) string

// replicaPairs is the "valid" column of keys that list replicas of partitions.
const replicaPairs = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."

// parseValidator reads the "valid" column of the tables.
func parseValidator(text string, k *Key) (validator, error) {
	switch {
	case text == "-":
		return nil, nil
	case text == "non-empty string":
		return nonEmptyString, nil
	case text == "non-null string":
		return nil, nil // a parsed value is never null
	case text == "non-empty list":
		return nil, nil // Kafka names it so, yet its default is the empty list; null cannot be written in a file
	case text == "[1,...,9] or -1":
		return oneOfRangeOr(1, 9, -1), nil
	case text == "[latest, earliest, by_duration:PnDTnHnMn.nS]":
		return offsetResetStrategy, nil
	case text == replicaPairs:
		return throttledReplicas(k.Name), nil
	case strings.HasPrefix(text, "any duplicates rejected"):
		return listValidator(nil, strings.Contains(text, "empty ok")), nil
	case strings.HasPrefix(text, "(case insensitive) ["):
		return oneOf(bracketed(text), true), nil
	case strings.HasPrefix(text, "[") && strings.Contains(text, ",..."):
		return parseRange(text)
	case strings.HasPrefix(text, "[") && k.Type == List:
		return listValidator(bracketed(text), strings.Contains(text, "empty ok")), nil
	case strings.HasPrefix(text, "["):
		return oneOf(bracketed(text), false), nil
	}
	return nil, fmt.Errorf("unknown validator %q", text)
}

// bracketed returns the elements between the first [ and ].
func bracketed(text string) []string {
	_, inner, _ := strings.Cut(text, "[")
	inner, _, _ = strings.Cut(inner, "]")
	return splitList(inner)
}

// parseRange reads "[min,...]" and "[min,...,max]"; both ends are inclusive.
func parseRange(text string) (validator, error) {
	parts := bracketed(text)
	low, err := strconv.ParseFloat(parts[0], 64)
	if err != nil {
		return nil, err
	}
	lowText, highText := parts[0], ""
	high := 0.0
	if len(parts) == 3 && parts[2] != "" {
		highText = parts[2]
		if high, err = strconv.ParseFloat(highText, 64); err != nil {
			return nil, err
		}
	}
	return func(v any) string {
		n := number(v)
		if n < low || math.IsNaN(n) {
			return "Value must be at least " + lowText
		}
		if highText != "" && n > high {
			return "Value must be no more than " + highText
		}
		return ""
	}, nil
}

func number(v any) float64 {
	switch v := v.(type) {
	case int32:
		return float64(v)
	case int16:
		return float64(v)
	case int64:
		return float64(v)
	case float64:
		return v
	}
	return 0
}

func oneOfRangeOr(low, high, other float64) validator {
	return func(v any) string {
		if n := number(v); n != other && (n < low || n > high) {
			return fmt.Sprintf("Value must be between %v and %v or equal to %v", low, high, other)
		}
		return ""
	}
}

func nonEmptyString(v any) string {
	if v == "" {
		return "String must be non-empty"
	}
	return ""
}

func oneOf(values []string, ignoreCase bool) validator {
	return func(v any) string {
		s, _ := v.(string)
		for _, valid := range values {
			if s == valid || ignoreCase && strings.EqualFold(s, valid) {
				return ""
			}
		}
		if ignoreCase {
			return "String must be one of (case insensitive): " + strings.Join(values, ", ")
		}
		return "String must be one of: " + strings.Join(values, ", ")
	}
}

// listValidator rejects duplicates (where the parser leaves any) and empty elements, the empty list unless emptyOK, and elements outside
// values unless values is nil.
func listValidator(values []string, emptyOK bool) validator {
	return func(v any) string {
		list, _ := v.([]string)
		if len(list) == 0 && !emptyOK {
			return "Configuration must not be empty. Valid values include: " + orAny(values)
		}
		seen := make(map[string]bool, len(list))
		for _, s := range list {
			switch {
			case s == "":
				return "Configuration values must not be empty."
			case seen[s]:
				return "Configuration values must not be duplicated."
			case values != nil && !slices.Contains(values, s):
				return "String must be one of: " + strings.Join(values, ", ")
			}
			seen[s] = true
		}
		return ""
	}
}

func orAny(values []string) string {
	if values == nil {
		return "any non-empty value"
	}
	return "[" + strings.Join(values, ", ") + "]"
}

// throttledReplicas accepts "*", "none", "" or partition:broker pairs (KIP-73).
func throttledReplicas(name string) validator {
	return func(v any) string {
		list, _ := v.([]string)
		if len(list) == 0 || len(list) == 1 && (list[0] == "*" || list[0] == "none" || list[0] == "") {
			return ""
		}
		for _, pair := range list {
			partition, broker, ok := strings.Cut(pair, ":")
			if !ok || !isNumber(partition) || !isNumber(broker) {
				return name + " must be the literal '*' or a list of replicas in the following format: " + replicaPairs
			}
		}
		return ""
	}
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}

// offsetResetStrategy accepts latest, earliest and by_duration:<ISO-8601 duration> (KIP-1106).
func offsetResetStrategy(v any) string {
	s, _ := v.(string)
	if s == "latest" || s == "earliest" {
		return ""
	}
	if d, ok := strings.CutPrefix(s, "by_duration:"); ok && isISODuration(d) {
		return ""
	}
	return "Invalid value. Valid values are latest, earliest and by_duration:PnDTnHnMn.nS"
}

// isISODuration tells whether s is a non-negative ISO-8601 duration of days, hours, minutes and seconds.
func isISODuration(s string) bool {
	s = strings.ToUpper(s)
	rest, ok := strings.CutPrefix(s, "P")
	if !ok || rest == "" {
		return false
	}
	date, clock, hasClock := strings.Cut(rest, "T")
	if hasClock && clock == "" {
		return false
	}
	return unitsInOrder(date, "D") && unitsInOrder(clock, "HMS")
}

// unitsInOrder tells whether s is a sequence of numbers each followed by one of units, in the order of units.
func unitsInOrder(s, units string) bool {
	for s != "" {
		end := strings.IndexAny(s, units)
		if end < 0 {
			return false
		}
		if _, err := strconv.ParseFloat(s[:end], 64); err != nil || strings.HasPrefix(s, "-") {
			return false
		}
		units = units[strings.IndexByte(units, s[end])+1:]
		s = s[end+1:]
	}
	return true
}
