package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"
)

// writeCertificates makes a certificate authority for this node alone, whose key
// is forgotten at once, and what it signs: pki/apiserver and pki/apiserver-kubelet-client.
// pki/service-account is the key of the tokens in pods, token the administrator's.
func (n *Node) writeCertificates() error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := template("holdfast-e2e-ca")
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	server := template("kube-apiserver")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	client := template("kube-apiserver-kubelet-client")
	client.Subject.Organization = []string{"system:masters"}
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

	sign := func(name string, cert *x509.Certificate) error {
		key, err := n.writeKey(name)
		if err != nil {
			return err
		}
		der, err := x509.CreateCertificate(rand.Reader, cert, ca, &key.PublicKey, caKey)
		if err != nil {
			return err
		}
		return n.writePEM(name+".crt", "CERTIFICATE", der)
	}
	_, keyErr := n.writeKey("service-account")
	token := rand.Text()
	return errors.Join(keyErr,
		n.writePEM("ca.crt", "CERTIFICATE", der),
		sign("apiserver", server),
		sign("apiserver-kubelet-client", client),
		writeFile(n.path("token"), token, 0o600),
		writeFile(n.path("tokens.csv"), token+`,admin,admin,"system:masters"`+"\n", 0o600),
	)
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	id := make([]byte, 20)
	_, _ = rand.Read(id)
	return &x509.Certificate{
		Subject:      pkix.Name{CommonName: name, SerialNumber: hex.EncodeToString(id[:4])},
		SerialNumber: serial,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(30 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		SubjectKeyId: id,
	}
}

func (n *Node) writeKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, n.writePEM(name+".key", "EC PRIVATE KEY", der)
}

func (n *Node) writePEM(name, kind string, der []byte) error {
	return writeFile(n.path("pki", name), string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})), 0o600)
}
