/// What an image of a row says of one column.
///
/// NULL is what the row has there; absent is that nobody knows what it has. Nothing turns the one into the other: what
/// rests on a value that is absent has to be asked, looked up or told, and is never simply no.
public enum ColumnText: Sendable, Hashable {
    case text([UInt8])
    case null
    /// The image does not hold the column: it is not published, it had another type then, its large value did not change
    /// and was not sent, or the replica identity does not keep it.
    case absent
}
