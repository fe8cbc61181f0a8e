// Package manifests has the tests of the manifests in folder deploy.
package manifests
