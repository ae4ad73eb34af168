//go:build !race

package endpoint_test

const race = false
