package config

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/viper"
)

// assignment is one KEY=VALUE of a properties file.
type assignment struct {
	key, value string
	line       int // where it begins, from 1
	// foreign is set when the text has bytes that look like UTF-8 beyond ASCII: it was read as something else.
	foreign bool
}

// parseProperties reads a file as Kafka does, which is by java.util.Properties.load: bytes are ISO 8859-1 with \uXXXX
// escapes, lines end with LF, CR or both and go on after an odd number of backslashes, # and ! begin comment lines,
// keys end at =, : or a blank. Assignments are in the order of the file, a later one of the same key wins. The error
// is an *Error that names the line. A byte order mark, which Java takes for a part of the first key, is skipped.
func parseProperties(name string, text []byte) ([]assignment, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var out []assignment
	lines := naturalLines(text)
	for i := 0; i < len(lines); i++ {
		first, line := i, skipBlanks(lines[i])
		if len(line) == 0 || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continued(line) {
			line = line[:len(line)-1]
			if i+1 == len(lines) {
				break
			}
			i++
			line = append(bytes.Clone(line), skipBlanks(lines[i])...)
		}
		if len(line) == 0 {
			continue
		}
		a, err := parseAssignment(line)
		if err != nil {
			return nil, &Error{Where: fmt.Sprintf("%s:%d", name, first+1), Key: a.key, Message: err.Error()}
		}
		a.line = first + 1
		out = append(out, a)
	}
	return out, nil
}

// naturalLines splits at LF, CR and CR LF.
func naturalLines(text []byte) [][]byte {
	var out [][]byte
	for len(text) > 0 {
		end := bytes.IndexAny(text, "\r\n")
		if end < 0 {
			return append(out, text)
		}
		out = append(out, text[:end])
		if text[end] == '\r' && end+1 < len(text) && text[end+1] == '\n' {
			end++
		}
		text = text[end+1:]
	}
	return out
}

const blanks = " \t\f"

func skipBlanks(line []byte) []byte { return bytes.TrimLeft(line, blanks) }

func continued(line []byte) bool {
	n := len(line) - len(bytes.TrimRight(line, `\`))
	return n%2 == 1
}

// parseAssignment splits a logical line, which is not empty, at its first separator. On an error the key may be
// known already.
func parseAssignment(line []byte) (assignment, error) {
	end := 0
	for end < len(line) && !strings.ContainsRune("=:"+blanks, rune(line[end])) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	rest := skipBlanks(line[end:])
	if len(rest) > 0 && (rest[0] == '=' || rest[0] == ':') {
		rest = skipBlanks(rest[1:])
	}
	a := assignment{foreign: utf8.Valid(line) && bytes.ContainsFunc(line, func(r rune) bool { return r >= utf8.RuneSelf })}
	var err error
	if a.key, err = unescape(line[:end]); err == nil {
		a.value, err = unescape(rest)
	}
	return a, err
}

// unescape decodes ISO 8859-1 and Java's escapes. The units are UTF-16: a character beyond the basic plane is two \u.
func unescape(text []byte) (string, error) {
	units := make([]uint16, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '\\' || i+1 == len(text) {
			if c != '\\' {
				units = append(units, uint16(c))
			}
			continue
		}
		i++
		switch text[i] {
		case 'u':
			digits := text[i+1 : min(i+5, len(text))]
			n, err := strconv.ParseUint(string(digits), 16, 16)
			if err != nil || len(digits) < 4 {
				return "", fmt.Errorf(`\u%s is not an escape: \u takes four hexadecimal digits (a backslash is written \\)`, digits)
			}
			units = append(units, uint16(n))
			i += 4
		case 't', 'n', 'r', 'f':
			units = append(units, uint16(map[byte]byte{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f'}[text[i]]))
		default:
			units = append(units, uint16(text[i]))
		}
	}
	return string(utf16.Decode(units)), nil
}

// propertiesDecoder lets viper read Java properties. Keys are handed over in hexadecimal: viper takes keys for lower
// case, but Kafka's are not all one, and for paths, but log.dir is no parent of log.dir.failure.timeout.ms.
type propertiesDecoder struct{ assignments []assignment }

func (d propertiesDecoder) Decode(_ []byte, out map[string]any) error {
	for _, a := range d.assignments {
		out[hex.EncodeToString([]byte(a.key))] = a.value
	}
	return nil
}

// addFile takes over the assignments of a file and warns of those that an operator may not mean.
func (v *values) addFile(name string, text []byte) ([]Warning, error) {
	v.file = name
	assignments, err := parseProperties(name, text)
	if err != nil {
		return nil, err
	}
	codecs := viper.NewCodecRegistry()
	if err := codecs.RegisterCodec("properties", struct {
		viper.Encoder
		viper.Decoder
	}{nil, propertiesDecoder{assignments}}); err != nil {
		return nil, err
	}
	vp := viper.NewWithOptions(viper.WithCodecRegistry(codecs))
	vp.SetConfigType("properties")
	if err := vp.ReadConfig(bytes.NewReader(text)); err != nil {
		return nil, &Error{Where: name, Message: err.Error()}
	}
	var warnings []Warning
	lines := map[string]int{}
	for _, a := range assignments {
		where := fmt.Sprintf("%s:%d", name, a.line)
		if before := lines[a.key]; before > 0 {
			warnings = append(warnings, Warning{Where: where, Key: a.key, Message: fmt.Sprintf("is set on line %d too; this, the later value, holds", before)})
		}
		if a.foreign && KeyOf(a.key) != nil {
			warnings = append(warnings, Warning{Where: where, Key: a.key, Message: fmt.Sprintf(
				`has characters beyond ASCII: as in Kafka, the file is read as ISO 8859-1 and this is %q; write them as \uXXXX`, shown(KeyOf(a.key).Sensitive, a.value))})
		}
		lines[a.key] = a.line
		v.static[a.key] = static{text: vp.GetString(hex.EncodeToString([]byte(a.key))), where: where, name: a.key}
	}
	return warnings, nil
}

// shown is a value as messages may show it.
func shown(sensitive bool, value string) string {
	if sensitive {
		return "[hidden]"
	}
	return value
}
