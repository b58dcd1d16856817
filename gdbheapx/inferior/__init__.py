"""Where bytes come from: a live process, a core or a remote target, behind one seam."""
