/// Value of one column in a row image.
///
/// `null` means that the row has NULL in this column. `absent` means that the value is unknown. The hub never treats
/// one as the other. If a decision depends on an absent value, the hub asks PostgreSQL, looks the value up, or reports
/// that it cannot decide. It never decides "no" for that reason.
public enum ColumnText: Sendable, Hashable {
    case text([UInt8])
    case null
    /// The image does not contain the column. Possible reasons: the column is not published, had another type, has a
    /// large unchanged value that was not sent, or is not kept by the replica identity.
    case absent
}
