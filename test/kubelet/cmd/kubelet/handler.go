//go:build !race

package main

// handler is kubelet's own CSI plugin handler (csi.PluginHandler), with every
// call and its outcome reported. Its methods are in kubelet_v1_*.go, because
// their signatures differ between kubelet's versions.
type handler struct{ out *report }

func (h *handler) validated(driver, endpoint string, err error) error {
	h.out.write(said(event{Event: "validate", Driver: driver, Endpoint: endpoint}, err))
	return err
}

func (h *handler) registered(driver, endpoint string, err error) error {
	h.out.write(said(event{Event: "register", Driver: driver, Endpoint: endpoint}, err))
	return err
}

func (h *handler) deregistered(driver, endpoint string) {
	h.out.write(event{Event: "deregister", Driver: driver, Endpoint: endpoint})
}
