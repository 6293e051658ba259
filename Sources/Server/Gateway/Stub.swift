extension CatalogSnapshot { func followed(_ oid: UInt32) -> CatalogTable? { nil } }
