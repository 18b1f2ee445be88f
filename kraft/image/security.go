package image

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strings"

	"gregor/protocol"
)

// ACL is an access control entry. Types, operations and permissions are Kafka's codes.
type ACL struct {
	ID             protocol.UUID
	ResourceType   int8
	ResourceName   string
	PatternType    int8
	Principal      string
	Host           string
	Operation      int8
	PermissionType int8
}

// ACLs holds the access control entries by id.
type ACLs struct {
	entries tree[protocol.UUID, *ACL]
}

func emptyACLs() *ACLs { return &ACLs{entries: newTree[protocol.UUID, *ACL](compareIDs)} }

// Get returns an entry, nil if there is none.
func (a *ACLs) Get(id protocol.UUID) *ACL {
	e, _ := a.entries.get(id)
	return e
}

// All iterates over the entries by id.
func (a *ACLs) All() iter.Seq[*ACL] { return values(&a.entries) }

// Len returns the number of entries.
func (a *ACLs) Len() int { return a.entries.len() }

func equalACLs(a, b *ACL) bool { return *a == *b }

func (a *ACLs) equal(o *ACLs) bool { return equalTrees(&a.entries, &o.entries, equalACLs) }

// ScramMechanism is the code of a SCRAM mechanism.
type ScramMechanism int8

// The SCRAM mechanisms.
const (
	ScramSHA256 ScramMechanism = 1
	ScramSHA512 ScramMechanism = 2
)

// ScramUser names a credential.
type ScramUser struct {
	Mechanism ScramMechanism
	Name      string
}

// Compare orders by mechanism, then name.
func (a ScramUser) Compare(b ScramUser) int {
	return cmp.Or(cmp.Compare(a.Mechanism, b.Mechanism), strings.Compare(a.Name, b.Name))
}

// ScramCredential is what SCRAM needs to check a password.
type ScramCredential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

func (c *ScramCredential) equal(o *ScramCredential) bool {
	return bytes.Equal(c.Salt, o.Salt) && bytes.Equal(c.StoredKey, o.StoredKey) &&
		bytes.Equal(c.ServerKey, o.ServerKey) && c.Iterations == o.Iterations
}

// Scram holds the SCRAM credentials.
type Scram struct {
	credentials tree[ScramUser, *ScramCredential]
}

func emptyScram() *Scram {
	return &Scram{credentials: newTree[ScramUser, *ScramCredential](ScramUser.Compare)}
}

// Get returns a credential, nil if there is none.
func (s *Scram) Get(mechanism ScramMechanism, name string) *ScramCredential {
	c, _ := s.credentials.get(ScramUser{Mechanism: mechanism, Name: name})
	return c
}

// All iterates over the credentials by mechanism and name.
func (s *Scram) All() iter.Seq2[ScramUser, *ScramCredential] { return s.credentials.all() }

// Len returns the number of credentials.
func (s *Scram) Len() int { return s.credentials.len() }

func (s *Scram) equal(o *Scram) bool {
	return equalTrees(&s.credentials, &o.credentials, (*ScramCredential).equal)
}

// DelegationToken is a delegation token without its HMAC, which follows from the id and the cluster's secret key.
type DelegationToken struct {
	ID string
	// Owner, Requester and Renewers are principals like "User:alice".
	Owner, Requester string
	Renewers         []string
	IssueMillis      int64
	MaxMillis        int64
	ExpirationMillis int64
}

func (t *DelegationToken) equal(o *DelegationToken) bool {
	return t.ID == o.ID && t.Owner == o.Owner && t.Requester == o.Requester && slices.Equal(t.Renewers, o.Renewers) &&
		t.IssueMillis == o.IssueMillis && t.MaxMillis == o.MaxMillis && t.ExpirationMillis == o.ExpirationMillis
}

// DelegationTokens holds the delegation tokens by id.
type DelegationTokens struct {
	tokens tree[string, *DelegationToken]
}

func emptyDelegationTokens() *DelegationTokens {
	return &DelegationTokens{tokens: newTree[string, *DelegationToken](strings.Compare)}
}

// Get returns a token, nil if there is none.
func (d *DelegationTokens) Get(id string) *DelegationToken {
	t, _ := d.tokens.get(id)
	return t
}

// All iterates over the tokens by id.
func (d *DelegationTokens) All() iter.Seq[*DelegationToken] { return values(&d.tokens) }

// Len returns the number of tokens.
func (d *DelegationTokens) Len() int { return d.tokens.len() }

func (d *DelegationTokens) equal(o *DelegationTokens) bool {
	return equalTrees(&d.tokens, &o.tokens, (*DelegationToken).equal)
}
