package controller

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
)

// Bounds of the iterations of a SCRAM credential.
const (
	MinScramIterations = 4096
	MaxScramIterations = 16384
)

// scramHash gives the hash of a mechanism, nil for an unknown one.
func scramHash(mechanism int8) func() hash.Hash {
	switch image.ScramMechanism(mechanism) {
	case image.ScramSHA256:
		return sha256.New
	case image.ScramSHA512:
		return sha512.New
	}
	return nil
}

// AlterUserScramCredentials decides AlterUserScramCredentials (51) v0: each user alone.
func (d *Decider) AlterUserScramCredentials(req *kmsg.AlterUserSCRAMCredentialsRequest) Result {
	resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	res := Result{Response: resp, Atomic: true}
	answer := func(user string, f *Fault) {
		r := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		r.User = user
		r.ErrorCode, r.ErrorMessage = codeAndMessage(f)
		resp.Results = append(resp.Results, r)
	}
	users := make([]string, 0, len(req.Deletions)+len(req.Upsertions))
	for _, x := range req.Deletions {
		users = append(users, x.Name)
	}
	for _, x := range req.Upsertions {
		users = append(users, x.Name)
	}
	_, twice := splitDuplicates(users)
	refused := make(map[string]*Fault)
	for _, user := range twice {
		refused[user] = refuse(codeDuplicateResource, "A user credential cannot be altered twice in the same request")
	}
	if !d.req.allowedOnCluster(opAlter) {
		for _, user := range dedup(users) {
			answer(user, refuseBare(codeClusterAuthorization))
		}
		return res
	}
	for _, x := range req.Deletions {
		if refused[x.Name] == nil {
			if f := d.checkScramDeletion(x); f != nil {
				refused[x.Name] = f
				continue
			}
			res.Records = append(res.Records,
				&metadata.RemoveUserScramCredentialRecord{Name: x.Name, Mechanism: x.Mechanism})
			answer(x.Name, nil)
		}
	}
	for _, x := range req.Upsertions {
		if refused[x.Name] == nil {
			if f := d.checkScramUpsertion(x); f != nil {
				refused[x.Name] = f
				continue
			}
			res.Records = append(res.Records, ScramRecord(x.Name, x.Mechanism, x.Salt, x.SaltedPassword, x.Iterations))
			answer(x.Name, nil)
		}
	}
	for _, user := range dedup(users) {
		if f := refused[user]; f != nil {
			answer(user, f)
		}
	}
	return res
}

// ScramRecord makes the record of a credential from its salted password.
func ScramRecord(
	name string, mechanism int8, salt, saltedPassword []byte, iterations int32,
) *metadata.UserScramCredentialRecord {
	h := scramHash(mechanism)
	mac := func(key []byte, text string) []byte {
		m := hmac.New(h, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	stored := h()
	stored.Write(mac(saltedPassword, "Client Key"))
	return &metadata.UserScramCredentialRecord{
		Name: name, Mechanism: mechanism, Salt: salt, Iterations: iterations,
		StoredKey: stored.Sum(nil), ServerKey: mac(saltedPassword, "Server Key"),
	}
}

func (d *Decider) checkScramUser(name string, mechanism int8) *Fault {
	switch {
	case !d.features.SupportsScram():
		return refuse(codeUnsupportedVersion, "The current metadata.version does not support SCRAM")
	case name == "":
		return refuse(codeUnacceptableCredential, "Username must not be empty")
	case scramHash(mechanism) == nil:
		return refuse(codeUnsupportedSASLMechanism, "Unknown SCRAM mechanism")
	}
	return nil
}

func (d *Decider) checkScramDeletion(x kmsg.AlterUserSCRAMCredentialsRequestDeletion) *Fault {
	if f := d.checkScramUser(x.Name, x.Mechanism); f != nil {
		return f
	}
	if d.Image.Scram.Get(image.ScramMechanism(x.Mechanism), x.Name) == nil {
		return refuse(codeResourceNotFound, "Attempt to delete a user credential that does not exist")
	}
	return nil
}

func (d *Decider) checkScramUpsertion(x kmsg.AlterUserSCRAMCredentialsRequestUpsertion) *Fault {
	if f := d.checkScramUser(x.Name, x.Mechanism); f != nil {
		return f
	}
	switch {
	case x.Iterations < MinScramIterations:
		return refuse(codeUnacceptableCredential, "Too few iterations")
	case x.Iterations > MaxScramIterations:
		return refuse(codeUnacceptableCredential, "Too many iterations")
	}
	return nil
}
