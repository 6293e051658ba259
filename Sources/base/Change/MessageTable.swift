import Bytes

/// The table whose rows are messages: a row that is inserted there is broadcast once it is committed.
///
/// It is partitioned by day. Changes come under the names of the partitions, or under the root's where a publication says
/// so; here both are the same table.
public enum MessageTable {
    public static let schema = "realtime"
    public static let name = "messages"

    /// Every change of the table is found by it, whatever its partition is called.
    public static let key = RowKey.table(schema: schema, name: name)

    /// Whether the relation is the table or one of its partitions, `messages_2026_03_01`.
    public static func holds(_ relation: Relation) -> Bool {
        relation.schema == schema && (relation.name == name || isPartition(relation.name))
    }

    private static func isPartition(_ partition: String) -> Bool {
        guard partition.hasPrefix(name + "_") else { return false }
        let date = partition.utf8.dropFirst(name.utf8.count + 1)
        guard date.count == 10 else { return false }
        return zip(date, "0000_00_00".utf8).allSatisfy { character, pattern in
            pattern == UInt8(ascii: "_") ? character == pattern : (UInt8(ascii: "0")...UInt8(ascii: "9")) ~= character
        }
    }
}
