import Auth
import Bytes
import Change
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Policy
import Positions
import Protocol
import System

/// Ledger notes about the channels of one project on one loop.
final class LoopLedger: LoopPart {
    unowned let home: ProjectLoop
    private(set) var recorder: LedgerRecorder

    init(of home: ProjectLoop) {
        self.home = home
        recorder = LedgerRecorder(loop: home.clients.number)
    }

    // MARK: Notes

    /// Writes to the ledger that a channel was joined.
    func noteJoin(_ channel: Channel) {
        guard project.ledger?.keeps(.joined) == true else { return }
        // Without bindings or after a move to another follower the position changes, but the recorded offset must not.
        let since = channel.position.since ?? channel.position.resumedFrom ?? home.live.pipeline.frontier
        let isNoted = note(.joined, channel) { note in
            note.offset = since
            note.isRecorded = recordsEach
            note.bindings = channel.bindingsForLedger
            if case .from(let position) = channel.position.resumption {
                note.reason = Array("went on from \(position)".utf8)
            }
            addHearing(of: channel, to: &note)
            addHolder(of: channel, to: &note)
        }
        channel.ledger.since = since
        channel.ledger.noted = isNoted ? notedNow : nil
        home.standings.watch()
    }

    /// Writes to the ledger that everything before the offset was sent to all channels. `began` is the Unix time in
    /// microseconds at which the check of the channels began.
    func noteReach(_ offset: UInt64, from began: Int64) {
        guard let ledger = project.ledger, ledger.keeps(.reached), recorder.isNews(reach: offset) else {
            return
        }
        recordSent()
        recorder.noteReach(offset, from: began, in: ledger, at: loop.time.unixMicroseconds())
    }

    /// Offset before which a channel's note is so old that it must be repeated, because retention will delete it soon;
    /// nil if no note must be repeated.
    var restatedBefore: UInt64? {
        guard let ledger = project.ledger, ledger.keeps(.stands), let oldest = home.catchUps.oldestOffset(),
            let end = project.delivery.log.end()?.state.position.offset, end > oldest + Limits.restatedAfterChanges
        else { return nil }
        return oldest + (end - oldest) / 4
    }

    /// True if the log lacks a current note about the channel: its note is before the offset `oldest`, or notes have
    /// been lost since.
    func mustBeRestated(_ channel: Channel, before oldest: UInt64) -> Bool {
        guard let noted = channel.ledger.noted else { return true }
        return noted.at < oldest || noted.behindMisses != recorder.missed.times
    }

    /// Writes to the ledger that notes are missing, if any are.
    func sayWhatIsMissing() {
        guard let ledger = project.ledger else { return }
        _ = recorder.saysWhatIsMissing(in: ledger, at: loop.time.unixMicroseconds())
    }

    private var notedNow: ChannelLedgerEntry.Noted {
        ChannelLedgerEntry.Noted(at: home.live.pipeline.frontier, behindMisses: recorder.missed.times)
    }

    /// Repeats the ledger's note about a joined channel.
    func restate(_ channel: Channel) {
        let isNoted = note(.stands, channel) { note in
            note.isRecorded = recordsEach
            note.offset = channel.ledger.since ?? home.live.pipeline.frontier
            addHearing(of: channel, to: &note)
            note.bindings = channel.bindingsForLedger
            addHolder(of: channel, to: &note)
        }
        if isNoted { channel.ledger.noted = notedNow }
    }

    /// Writes to the ledger that a channel's join was refused.
    func noteRefusal(_ channel: Channel, _ reason: String) {
        noteRefusal(of: channel.session, TokenHolder(channel.claims), channel.ledgerTopic, reason) { note in
            note.channel = channel.id.incarnation
            note.bindings = channel.bindingsForLedger
        }
    }

    /// Writes to the ledger that another token replaced a channel's token.
    func noteRenewal(_ channel: Channel) {
        let isNoted = note(.renewed, channel) { note in
            note.offset = home.live.pipeline.frontier
            addHolder(of: channel, to: &note)
        }
        // A channel without any note yet will get one with its new claims.
        if !isNoted, channel.ledger.noted != nil { recorder.missKnown() }
    }

    /// Writes to the ledger that a loss was reported to a client. The note names the holder, so that readers need no
    /// other note.
    func noteLoss(_ channel: Channel, _ text: String) {
        let isNoted = note(.told, channel) { note in
            note.offset = home.live.pipeline.frontier
            note.role = channel.claims.role.copied()
            note.subject = channel.claims.subject.copied()
            note.reason = Array("\(TextCode.changesMissing.rawValue): \(text)".utf8)
        }
        if !isNoted { recorder.missKnown() }
    }

    /// Writes to the ledger that a channel has ended.
    func noteEnd(_ channel: Channel, _ reason: ChannelStop) {
        leaveSeat(of: channel)
        assert(channel.ledger.seat == nil, "deliveries are recorded before the end of their channel")
        if let feed = channel.feed, feed.isPage { return noteAnswer(to: channel, feed) }
        guard channel.ledger.isListed else { return }
        if channel.ledger.noted == nil { restate(channel) }
        if channel.ledger.noted == nil {
            recorder.missStranger()
        } else {
            noteKnownEnd(channel, reason)
        }
        channel.ledger.since = nil
    }

    private func noteKnownEnd(_ channel: Channel, _ reason: ChannelStop) {
        let isNoted = note(.left, channel) { note in
            note.offset = sentForLedger(channel) ?? channel.position.since ?? 0
            // The hub does not track acknowledgements of a client that it could not recognize.
            note.received = channel.position.receipt == nil ? 0 : home.returns.acknowledgedOffset(of: channel) ?? 0
            note.subject = channel.claims.subject.copied()
            note.reason = Array(Self.sentence(reason, channel).utf8)
        }
        if !isNoted { recorder.missKnown() }
    }

    /// Returns the reason why a channel ended as a text for people, without row data.
    private static func sentence(_ reason: ChannelStop, _ channel: Channel) -> String {
        if let feed = channel.feed {
            return "\(feed.isAnswered ? "its answer" : "its socket") ended after \(feed.changesSaid)"
        }
        return switch reason {
        case .left: "the client left"
        case .replaced: "the client joined the topic again"
        case .expelled(let ending): "the hub closed the channel (\(ending.text))"
        case .refused: "the join was refused"
        case .crashed: "the hub closed the channel (it failed)"
        case .socketGone: channel.session.past.end ?? "the connection ended"
        }
    }

    /// Writes to the ledger that the answer to a page of changes ended, if it had begun. Empty pages are not recorded,
    /// because clients may poll every second.
    private func noteAnswer(to channel: Channel, _ feed: Feed) {
        if case .joining = feed.stage { return }
        let begin = channel.position.resumedFrom ?? channel.position.since ?? home.live.pipeline.frontier
        let end = max(begin, home.feeds.offset(of: channel))
        guard end > begin || feed.share.told > 0 else { return }
        let isNoted = note(.answered, channel) { note in
            (note.offset, note.received) = (begin, end)
            note.isRecorded = recordsEach
            note.bindings = channel.bindingsForLedger
            let more = feed.share.isFull ? ", all that it asked for at once" : ""
            let lost = feed.isAnswered ? "" : "; its socket ended"
            note.reason = Array("a page with \(feed.changesSaid)\(more)\(lost)".utf8)
            addHolder(of: channel, to: &note)
        }
        if !isNoted { recorder.missStranger() }
    }

    /// Writes to the ledger that a socket, join or request was refused, if a signed token names its holder. For a
    /// while, the same refusal is not recorded again. `topic` is empty for a socket.
    func noteRefusal(
        of session: Session, _ holder: @autoclosure () -> TokenHolder?, _ topic: [UInt8], _ reason: String,
        _ fill: (inout LedgerNote) -> Void = { _ in }
    ) {
        guard let ledger = project.ledger, ledger.keeps(.refused), let holder = holder() else { return }
        let verdict = recorder.refusals.note(of: holder.subject, topic, reason, at: loop.now)
        if verdict == .known { return }
        var note = LedgerNote(
            .refused, time: loop.time.unixMicroseconds(), session: number(of: session), channel: 0)
        add(holder, ledger, to: &note)
        if verdict == .news {
            note.topic = topic
            note.reason = Array(reason.utf8)
            fill(&note)
        } else {
            note.reason = Array("more refusals of this user within a minute are not recorded".utf8)
        }
        if !record(note, ledger) { recorder.missStranger() }
    }

    /// Returns the offset before which the hub has sent everything to the channel; nil if it has sent nothing.
    func sentForLedger(_ channel: Channel) -> UInt64? {
        switch channel.recipient {
        case .client: home.returns.sentOffset(of: channel)
        case .feed: home.feeds.offset(of: channel)
        }
    }

    /// Writes a note about the channel to the ledger. Returns false if the log has no room for it.
    private func note(_ event: LedgerNote.Event, _ channel: Channel, _ fill: (inout LedgerNote) -> Void) -> Bool {
        guard let ledger = project.ledger, ledger.keeps(event) else { return true }
        var note = LedgerNote(
            event, time: loop.time.unixMicroseconds(), session: number(of: channel.session),
            channel: channel.id.incarnation)
        note.topic = channel.ledgerTopic
        fill(&note)
        return record(note, ledger)
    }

    private func record(_ note: LedgerNote, _ ledger: ChannelLedger) -> Bool {
        recorder.record(note, in: ledger, at: loop.time.unixMicroseconds())
    }

    /// Returns the number by which the ledger identifies the session; makes one at the first call.
    func number(of session: Session) -> UInt64 {
        if session.ledgerNumber == 0 { session.ledgerNumber = recorder.number(at: loop.time.unixMicroseconds()) }
        assert(
            session.ledgerNumber & LedgerNote.loopBits == recorder.loop, "a session's number names its own loop")
        return session.ledgerNumber
    }

    /// Adds to the note whether the topic is private, and whether the channel may receive its broadcasts.
    private func addHearing(of channel: Channel, to note: inout LedgerNote) {
        note.isPrivate = channel.conversation.isPrivate
        note.isDeaf = note.isPrivate && channel.conversation.details?.readsBroadcasts != true
    }

    private func addHolder(of channel: Channel, to note: inout LedgerNote) {
        if let ledger = project.ledger { add(TokenHolder(channel.claims), ledger, to: &note) }
    }

    private func add(_ holder: TokenHolder, _ ledger: ChannelLedger, to note: inout LedgerNote) {
        note.role = holder.role
        note.subject = holder.subject
        let (kept, others) = ledger.kept(of: holder.json.rawBytes)
        note.claims = kept
        note.otherClaims = Array(others.joined(separator: ",").utf8)
    }
}

/// Record of each delivery, if the setting `ledger` is `full`. Followers record the recipients of each change by seat.
/// At the end of a turn the loop collects these records, and passes them to the log in blocks.
extension LoopLedger {
    /// Returns the index under which `LedgerRecorder` records deliveries to the channel. It is not reused before the
    /// channel has ended.
    func seat(of channel: Channel) -> UInt32 {
        guard recordsEach else { return Recipient.unrecorded }
        if let known = channel.ledger.seat { return known }
        let seat = recorder.seat(session: number(of: channel.session), channel: channel.id.incarnation)
        channel.ledger.seat = seat
        return seat
    }

    /// True if the ledger records each delivery.
    var recordsEach: Bool { project.ledger?.keeps(.delivered) == true }

    /// Records that a database message was sent to the channels with these places (indices).
    func recordSent(message offset: UInt64, to members: some Sequence<UInt32>) {
        guard recordsEach else { return }
        let seats = members.compactMap { home.channels[$0].map(seat(of:)) }
        guard !seats.isEmpty else { return }
        recorder.beginTurn(at: loop.time.unixMicroseconds(), changes: 1)
        recorder.deliver(offset, to: seats.span)
        timeSentRecord()
    }

    /// Passes the channel's recorded deliveries to the log and frees its index in the record. The caller must do this
    /// before it writes the channel's end, because readers assume that no delivery is recorded after it.
    func leaveSeat(of channel: Channel) {
        guard let seat = channel.ledger.seat else { return }
        recordSent()
        handSentRecordOver()
        recorder.leave(seat)
        channel.ledger.seat = nil
    }

    /// Collects from all followers the deliveries that they recorded since the last call.
    func recordSent() {
        var now: Int64?
        for follower in home.followers where follower.pipeline.sentCount > 0 {
            let time = now ?? loop.time.unixMicroseconds()
            now = time
            recorder.beginTurn(at: time, changes: follower.pipeline.sentCount)
            follower.pipeline.router.takeSent { recorder.deliver($0, to: $1) }
        }
        guard now != nil else { return }
        timeSentRecord()
    }

    private func timeSentRecord() {
        if recorder.isFull { handSentRecordOver() }
        guard recorder.beginWait() else { return }
        loop.after(
            nanoseconds: Limits.deliveryBlockInterval.wholeNanoseconds,
            token: TimerToken.sentRecord(home.place).rawValue)
    }

    func sentRecordIsDue() {
        recorder.waitIsOver()
        handSentRecordOver()
    }

    private func handSentRecordOver() {
        guard let ledger = project.ledger else { return }
        recorder.handOver(to: ledger, at: loop.time.unixMicroseconds())
    }
}

/// Counts of notes that were lost and not reported in the log yet.
struct MissedNotes {
    /// Number of lost notes about channels that the ledger lists.
    var ofKnown: UInt64 = 0
    /// Number of channels and requests of which the ledger has no note at all.
    var strangers: UInt64 = 0
    /// Number of times that notes about listed channels were lost. After each, notes about all joined channels are
    /// repeated.
    private(set) var times: UInt32 = 0

    var isEmpty: Bool { ofKnown == 0 && strangers == 0 }

    mutating func areSaid() {
        if ofKnown > 0 { times &+= 1 }
        (ofKnown, strangers) = (0, 0)
    }
}

extension Feed {
    fileprivate var changesSaid: String { share.told == 1 ? "1 change" : "\(share.told) changes" }
}

extension Channel {
    /// Bindings as JSON, as the client wrote them.
    var bindingsForLedger: [UInt8] { listedBindings { $0 } }

    /// Bindings as JSON, with the values in filters replaced by a mask, in the same way as readers of the ledger mask
    /// them.
    var bindingsForCensus: [UInt8] {
        let bounds = Filter.Bounds(
            bytes: Limits.maximumFilterBytes, conditions: Limits.maximumFilterConditions,
            depth: Limits.maximumFilterDepth)
        return listedBindings { text in
            let parsed = try? Filter.parse(text, within: bounds)
            let conditions = (parsed ?? nil)?.conditions.map { condition in
                "\(condition.column)=\(condition.isNegated ? "not." : "")\(condition.comparison.rawValue).***"
            }
            return conditions?.joined(separator: ",") ?? "***"
        }
    }

    private func listedBindings(_ shown: (_ filter: String) -> String) -> [UInt8] {
        var json = ByteWriter(capacity: 128)
        json.append("[")
        for parameters in bindings.compactMap(\.parameters) {
            json.append(json.count > 1 ? ",{\"event\":" : "{\"event\":")
            JSONText.appendString("\(parameters.event.name)", to: &json)
            json.append(",\"schema\":")
            JSONText.appendString(parameters.schema, to: &json)
            json.append(",\"table\":")
            JSONText.appendString(parameters.table, to: &json)
            if let filter = parameters.filter {
                json.append(",\"filter\":")
                JSONText.appendString(shown(filter), to: &json)
            }
            for (place, column) in parameters.select.enumerated() {
                json.append(place == 0 ? ",\"select\":[" : ",")
                JSONText.appendString(column, to: &json)
            }
            json.append(parameters.select.isEmpty ? "}" : "]}")
        }
        json.append("]")
        return json.count <= Limits.maximumLedgerTextBytes ? json.copied() : []
    }
}
