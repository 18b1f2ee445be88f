package checkpoint

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
)

// property is a key of a Java properties file with the line it starts on.
type property struct {
	Property
	line int
}

// parseProperties reads a Java properties file: bytes are Latin-1, \uXXXX is UTF-16, a backslash at the end of a
// line joins it with the next (whose leading blanks go), # and ! begin comments, and = or : or blanks end a key.
func parseProperties(b []byte) ([]property, error) {
	var props []property
	line := 0
	for len(b) > 0 {
		first := line + 1
		var logical []byte
		logical, b, line = logicalLine(b, line)
		logical = bytes.TrimLeft(logical, propertyBlanks)
		if len(logical) == 0 || logical[0] == '#' || logical[0] == '!' {
			continue
		}
		keyEnd, valueStart := splitProperty(logical)
		key, err := unescapeProperty(logical[:keyEnd], first)
		if err != nil {
			return nil, err
		}
		value, err := unescapeProperty(logical[valueStart:], first)
		if err != nil {
			return nil, err
		}
		props = append(props, property{Property{key, value}, first})
	}
	return props, nil
}

const propertyBlanks = " \t\f"

// logicalLine takes one line and those that continue it off b; line counts the natural lines.
func logicalLine(b []byte, line int) (logical, rest []byte, lastLine int) {
	comment := false
	for natural := 0; ; natural++ {
		end := bytes.IndexAny(b, "\r\n")
		text := b
		if end >= 0 {
			text, rest = b[:end], b[end+1:]
			if b[end] == '\r' && len(rest) > 0 && rest[0] == '\n' {
				rest = rest[1:]
			}
		} else {
			rest = nil
		}
		line++
		trimmed := bytes.TrimLeft(text, propertyBlanks)
		if natural == 0 {
			comment = len(trimmed) > 0 && (trimmed[0] == '#' || trimmed[0] == '!')
		}
		backslashes := len(text) - len(bytes.TrimRight(text, `\`))
		if comment || backslashes%2 == 0 {
			return append(logical, trimmed...), rest, line
		}
		logical = append(logical, trimmed[:len(trimmed)-1]...)
		if len(rest) == 0 {
			return logical, rest, line
		}
		b = rest
	}
}

func splitProperty(logical []byte) (keyEnd, valueStart int) {
	i := 0
	for i < len(logical) && bytes.IndexByte([]byte(" \t\f=:"), logical[i]) < 0 {
		if logical[i] == '\\' {
			i++
		}
		i++
	}
	keyEnd = min(i, len(logical))
	i = keyEnd
	separator := false
	for i < len(logical) {
		switch c := logical[i]; {
		case bytes.IndexByte([]byte(propertyBlanks), c) >= 0:
		case !separator && (c == '=' || c == ':'):
			separator = true
		default:
			return keyEnd, i
		}
		i++
	}
	return keyEnd, i
}

func unescapeProperty(b []byte, line int) (string, error) {
	units := make([]uint16, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			if b[i] != '\\' {
				units = append(units, uint16(b[i]))
			}
			continue
		}
		i++
		switch b[i] {
		case 't':
			units = append(units, '\t')
		case 'n':
			units = append(units, '\n')
		case 'r':
			units = append(units, '\r')
		case 'f':
			units = append(units, '\f')
		case 'u':
			if i+4 >= len(b) {
				return "", syntaxErrorf(line, `\u without four hexadecimal digits`)
			}
			v, err := strconv.ParseUint(string(b[i+1:i+5]), 16, 16)
			if err != nil {
				return "", syntaxErrorf(line, `\u without four hexadecimal digits`)
			}
			units = append(units, uint16(v))
			i += 4
		default:
			units = append(units, uint16(b[i]))
		}
	}
	return string(utf16.Decode(units)), nil
}

// appendProperty writes a line that Java reads back as it is; all but printable ASCII is escaped.
func appendProperty(b *bytes.Buffer, key, value string) {
	escapeProperty(b, key, true)
	b.WriteByte('=')
	escapeProperty(b, value, false)
	b.WriteByte('\n')
}

func escapeProperty(b *bytes.Buffer, text string, isKey bool) {
	for i, u := range utf16.Encode([]rune(text)) {
		switch {
		case u == ' ' && (isKey || i == 0):
			b.WriteString(`\ `)
		case u == '\t':
			b.WriteString(`\t`)
		case u == '\n':
			b.WriteString(`\n`)
		case u == '\r':
			b.WriteString(`\r`)
		case u == '\f':
			b.WriteString(`\f`)
		case u == '\\' || u == '=' || u == ':' || u == '#' || u == '!':
			b.WriteByte('\\')
			b.WriteByte(byte(u))
		case u < 0x20 || u > 0x7e:
			fmt.Fprintf(b, `\u%04X`, u)
		default:
			b.WriteByte(byte(u))
		}
	}
}
