// SPDX-License-Identifier: Apache-2.0
// Read from files, a page may not read another one: the search then lists pages without excerpts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
