import Bytes

/// Table whose rows are messages (`realtime.messages`). The hub broadcasts each inserted row after its commit.
///
/// The table is partitioned by day. Changes name the partition, or the whole table if the publication is set so. Both
/// count as the same table here.
public enum MessageTable {
    public static let schema = "realtime"
    public static let name = "messages"

    /// Key by which readers find every change of the table, in any partition.
    public static let key = RowKey.table(schema: schema, name: name)

    /// True if the relation is the table itself or one of its partitions, such as `messages_2026_03_01`.
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
