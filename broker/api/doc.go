// Package api answers requests: one file per API key, each headed by its versions, what each version changed and
// its error codes. A handler turns a request into calls of the layers below and their results into a response;
// it has no logic of its own.
//
// table.go is the only list of APIs: dispatch, ApiVersions, the documentation table and the tests derive from it.
// What is not in the table is not advertised, and a request for it closes the connection, as in Kafka.
package api
