package kraft

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"gregor/kraft/controller"
	"gregor/kraft/image"
	"gregor/kraft/metadata"
)

// scramMechanism is a SCRAM mechanism as --add-scram names it.
type scramMechanism struct {
	code   image.ScramMechanism
	name   string // in messages
	derive func(password string, salt []byte, iterations int) ([]byte, error)
}

var scramMechanisms = map[string]scramMechanism{
	"SCRAM-SHA-256": {image.ScramSHA256, "SCRAM_SHA_256", func(password string, salt []byte, n int) ([]byte, error) {
		return pbkdf2.Key(sha256.New, password, salt, n, sha256.Size)
	}},
	"SCRAM-SHA-512": {image.ScramSHA512, "SCRAM_SHA_512", func(password string, salt []byte, n int) ([]byte, error) {
		return pbkdf2.Key(sha512.New, password, salt, n, sha512.Size)
	}},
}

// parseScram reads an argument of --add-scram: MECHANISM=[name=NAME,password=PASSWORD] or
// [name=NAME,salt="BASE64",saltedpassword="BASE64"], with iterations=N in both.
func parseScram(arg string) (*metadata.UserScramCredentialRecord, error) {
	arg = strings.TrimSpace(arg)
	name, config, ok := strings.Cut(arg, "=")
	if !ok {
		return nil, formatError("Failed to find equals sign in SCRAM argument '%s'", arg)
	}
	mechanism, ok := scramMechanisms[name]
	switch {
	case !ok:
		return nil, formatError("The add-scram mechanism %s is not supported.", name)
	case !strings.HasPrefix(config, "["):
		return nil, formatError("Expected configuration string to start with [")
	case !strings.HasSuffix(config, "]"):
		return nil, formatError("Expected configuration string to end with ]")
	}
	values := make(map[string]string)
	for part := range strings.SplitSeq(config[1:len(config)-1], ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, formatError("No equals sign found in SCRAM component: %s", part)
		}
		if len(value) >= 2 && strings.HasPrefix(value, `"`) && strings.HasSuffix(value, `"`) {
			value = value[1 : len(value)-1]
		}
		values[key] = value
	}
	return scramRecord(mechanism, values)
}

func take(values map[string]string, key string) (string, bool) {
	v, ok := values[key]
	delete(values, key)
	return v, ok
}

func scramRecord(m scramMechanism, values map[string]string) (*metadata.UserScramCredentialRecord, error) {
	user, ok := take(values, "name")
	if !ok {
		return nil, formatError("You must supply 'name' to add-scram")
	}
	salt, err := scramSalt(values)
	if err != nil {
		return nil, err
	}
	iterations, err := scramIterations(values)
	if err != nil {
		return nil, err
	}
	password, hasPassword := take(values, "password")
	saltedText, hasSalted := take(values, "saltedpassword")
	switch {
	case !hasPassword && !hasSalted:
		return nil, formatError("You must supply one of 'password' or 'saltedpassword' to add-scram")
	case !hasPassword && salt == nil:
		return nil, formatError("You must supply 'salt' with 'saltedpassword' to add-scram")
	}
	var salted []byte
	if !hasPassword {
		if salted, err = base64.StdEncoding.DecodeString(saltedText); err != nil {
			return nil, formatError("Failed to decode given saltedPassword: %s", saltedText)
		}
	}
	if len(values) > 0 {
		return nil, formatError("Unknown SCRAM configurations: %s", strings.Join(slices.Sorted(maps.Keys(values)), ", "))
	}
	if err := m.checkIterations(iterations); err != nil {
		return nil, err
	}
	if salt == nil {
		salt = randomSalt()
	}
	if hasPassword {
		if salted, err = m.derive(password, salt, int(iterations)); err != nil {
			return nil, err
		}
	}
	return controller.ScramRecord(user, int8(m.code), salt, salted, int32(iterations)), nil
}

// scramIterations takes the count that is asked for, or the least one.
func scramIterations(values map[string]string) (int64, error) {
	text, ok := take(values, "iterations")
	if !ok {
		return controller.MinScramIterations, nil
	}
	iterations, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, formatError("Failed to parse iterations count: %s", text)
	}
	return iterations, nil
}

func (m scramMechanism) checkIterations(iterations int64) error {
	switch {
	case iterations < controller.MinScramIterations:
		return formatError("The 'iterations' value must be >= %d for add-scram using %s", controller.MinScramIterations, m.name)
	case iterations > controller.MaxScramIterations:
		return formatError("The 'iterations' value must be <= %d for add-scram using %s", controller.MaxScramIterations, m.name)
	}
	return nil
}

func scramSalt(values map[string]string) ([]byte, error) {
	text, ok := take(values, "salt")
	if !ok {
		return nil, nil
	}
	salt, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, formatError("Failed to decode given salt: %s", text)
	}
	return salt, nil
}

// randomSalt makes a salt as Kafka does: the digits, in base 36, of a random number of 130 bits.
func randomSalt() []byte {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 130))
	if err != nil {
		panic("crypto/rand failed: " + err.Error())
	}
	return []byte(n.Text(36))
}
