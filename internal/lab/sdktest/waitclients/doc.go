// Package waitclients has the waiting API called by the programs of examples/clients, and compares its
// OpenAPI file with its handler.
package waitclients
