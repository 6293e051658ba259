/// Value of one column in a row image.
///
/// `null` means that the row has NULL there; `absent` means that the value is unknown. The hub never turns one into the
/// other. A decision that depends on an absent value must be asked for, looked up or reported; it is never simply "no".
public enum ColumnText: Sendable, Hashable {
    case text([UInt8])
    case null
    /// The image does not contain the column: the column is not published, had another type then, has a large unchanged
    /// value that was not sent, or is not kept by the replica identity.
    case absent
}
