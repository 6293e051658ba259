import Change

/// Publication as the log has followed it: its number, and the catalog row of each member.
///
/// PostgreSQL decodes a change by the catalog of that moment. Changes committed while a publication or its table was
/// missing never arrive, and no error reports that. A publication that is created again gets a new number. So does the
/// catalog row of a table that is added again.
public struct PublishedTables: Sendable, Equatable {
    public var number: UInt32
    /// Tables and schemas, each with the catalog row that adds it. Removed members stay here, because they may come
    /// back.
    public var members: [UInt32: UInt32]

    public init(number: UInt32, members: [UInt32: UInt32]) {
        self.number = number
        self.members = members
    }

    /// Returns the reason for a possible loss if the publication is now `now`; nil if nothing is lost.
    func breach(by now: PublishedTables) -> Gap.Reason? {
        number != now.number ? .publicationRecreated : nil
    }

    /// Returns the members to remember: all present ones, and removed ones as far as `maximum` allows.
    func remembering(_ before: PublishedTables?, atMost maximum: Int) -> PublishedTables {
        guard let before, before.number == number else { return self }
        var all = self
        for (member, row) in before.members.sorted(by: { $0.key < $1.key })
        where all.members[member] == nil && all.members.count < maximum {
            all.members[member] = row
        }
        assert(all.members.count <= max(maximum, members.count), "removed members take only the room that is left")
        return all
    }
}
