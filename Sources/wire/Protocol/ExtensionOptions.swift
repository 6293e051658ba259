import Bytes

/// What we offer beyond the reference, to those who ask for it.
///
/// Clients that people have drop what they do not know of a join, each in another place, so there are several: parameters
/// of the socket's address (`tidewire.moves=true`), `config.broadcast.tidewire`, a binding's own `tidewire`, and
/// `config.tidewire`. Of several that say something the one that is nearer to the channel counts.
public struct ExtensionOptions: Sendable, Hashable {
    public enum Name: UInt8, Sendable, CaseIterable {
        /// An update that takes a row out of what a binding sees is told as a delete of it.
        case moves
        /// What limits or rights kept from it is told.
        case limits
        /// The log's position is told, from which it can resume.
        case position
        /// The rows that there are are told first.
        case snapshot

        var text: StaticString {
            switch self {
            case .moves: "moves"
            case .limits: "limits"
            case .position: "position"
            case .snapshot: "snapshot"
            }
        }

        fileprivate var bit: UInt8 { 1 << rawValue }
    }

    private var given: UInt8 = 0
    private var values: UInt8 = 0
    /// What was asked for and is none of them, or has a value that it cannot have; the first of them.
    public private(set) var unknown: [String] = []

    public static let maximumUnknown = 8
    private static let maximumShownCharacters = 64

    public init() {}

    /// Of a socket's address: whatever begins with `tidewire.`.
    public init(parameters: some Sequence<(name: String, value: String)>) {
        for (name, value) in parameters where name.hasPrefix("tidewire.") {
            let option = Name.allCases.first { "tidewire.\($0.text)" == name }
            switch (option, value.lowercased()) {
            case (let option?, "true"), (let option?, "1"): self[option] = true
            case (let option?, "false"), (let option?, "0"): self[option] = false
            default: note("\(name)=\(value)")
            }
        }
    }

    public subscript(name: Name) -> Bool? {
        get { given & name.bit == 0 ? nil : values & name.bit != 0 }
        set {
            given = newValue == nil ? given & ~name.bit : given | name.bit
            values = newValue == true ? values | name.bit : values & ~name.bit
        }
    }

    /// What is said here counts, else what is said there.
    public func over(_ wider: ExtensionOptions) -> ExtensionOptions {
        var both = self
        both.given |= wider.given
        both.values |= wider.values & ~given
        for name in wider.unknown { both.note(name) }
        return both
    }

    mutating func note(_ name: String) {
        guard unknown.count < Self.maximumUnknown, !unknown.contains(name) else { return }
        let shown = name.prefix(Self.maximumShownCharacters)
        unknown.append(shown.count < name.count ? shown + "…" : name)
    }

    /// For whoever asked for what there is not.
    public func complaint(_ name: String) -> ClientText {
        let names = Name.allCases.map { "\($0.text)" }.joined(separator: ", ")
        return ClientText(
            .unknownOption, "Unknown option \(name): there are \(names) (true or false) and, in a join, resume")
    }
}

extension ExtensionOptions {
    /// The object that begins with the next token, if one does.
    init(_ scanner: inout JSONScanner) throws(ByteError) {
        let token = try scanner.next()
        guard token == .beginObject else {
            try scanner.skip(token)
            return
        }
        while try scanner.next() == .name { try readMember(&scanner) }
    }

    /// A name was read; its value is next.
    mutating func readMember(_ scanner: inout JSONScanner) throws(ByteError) {
        let option = Name.allCases.first { scanner.equals($0.text) }
        let name = option == nil ? scanner.text : ""
        let token = try scanner.next()
        // As of all booleans of a join: a string may say it, in any case.
        let text = token == .string && scanner.tokenBytes.byteCount <= 5 ? scanner.text.lowercased() : ""
        switch (option, token) {
        case (let option?, .bool(let value)): self[option] = value
        case (let option?, .string) where text == "true" || text == "false": self[option] = text == "true"
        case (.some, .null): break
        case (let option, _):
            note("tidewire.\(option.map { "\($0.text)" } ?? name)")
            try scanner.skip(token)
        }
    }
}
