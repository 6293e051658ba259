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

/// Notes about the channels of one project on one loop, for the ledger.
final class LoopLedger: LoopPart {
    unowned let home: ProjectLoop
    private(set) var recorder: LedgerRecorder

    init(of home: ProjectLoop) {
        self.home = home
        recorder = LedgerRecorder(loop: home.clients.number)
    }

    // MARK: Notes

    func noteJoin(_ channel: Channel) {
        guard project.ledger?.keeps(.joined) == true else { return }
        // The offset keeps its value, even if the channel listens to nothing or moves to another follower.
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

    /// Notes that all channels were sent everything before the offset. `began` is the time at which the check of the
    /// channels started.
    func noteReach(_ offset: UInt64, from began: Int64) {
        guard let ledger = project.ledger, ledger.keeps(.reached), recorder.isNews(reach: offset) else {
            return
        }
        recordSent()
        recorder.noteReach(offset, from: began, in: ledger, at: loop.time.unixMicroseconds())
    }

    /// Offset before which a channel's note is repeated. The repeat keeps joined channels known when retention removes
    /// the older notes.
    var restatedBefore: UInt64? {
        guard let ledger = project.ledger, ledger.keeps(.stands), let oldest = home.catchUps.oldestOffset(),
            let end = project.delivery.log.end()?.state.position.offset, end > oldest + Limits.restatedAfterChanges
        else { return nil }
        return oldest + (end - oldest) / 4
    }

    /// True if the log lacks the channel's current state: its note is older than `oldest`, or notes have been missed
    /// since.
    func mustBeRestated(_ channel: Channel, before oldest: UInt64) -> Bool {
        guard let noted = channel.ledger.noted else { return true }
        return noted.at < oldest || noted.behindMisses != recorder.missed.times
    }

    /// Records that notes are missing, if any are.
    func sayWhatIsMissing() {
        guard let ledger = project.ledger else { return }
        _ = recorder.saysWhatIsMissing(in: ledger, at: loop.time.unixMicroseconds())
    }

    private var notedNow: ChannelLedgerEntry.Noted {
        ChannelLedgerEntry.Noted(at: home.live.pipeline.frontier, behindMisses: recorder.missed.times)
    }

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

    /// Notes the refused join of a channel.
    func noteRefusal(_ channel: Channel, _ reason: String) {
        noteRefusal(of: channel.session, TokenHolder(channel.claims), channel.ledgerTopic, reason) { note in
            note.channel = channel.id.incarnation
            note.bindings = channel.bindingsForLedger
        }
    }

    func noteRenewal(_ channel: Channel) {
        let isNoted = note(.renewed, channel) { note in
            note.offset = home.live.pipeline.frontier
            addHolder(of: channel, to: &note)
        }
        // A channel without any note yet will be noted with its new claims.
        if !isNoted, channel.ledger.noted != nil { recorder.missKnown() }
    }

    /// Notes a reported loss. The note names the holder, so that readers do not need the note about the join.
    func noteLoss(_ channel: Channel, _ text: String) {
        let isNoted = note(.told, channel) { note in
            note.offset = home.live.pipeline.frontier
            note.role = channel.claims.role.copied()
            note.subject = channel.claims.subject.copied()
            note.reason = Array("\(TextCode.changesMissing.rawValue): \(text)".utf8)
        }
        if !isNoted { recorder.missKnown() }
    }

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
            // A client that the hub could not recognize is not asked what it has received.
            note.received = channel.position.receipt == nil ? 0 : home.returns.acknowledgedOffset(of: channel) ?? 0
            note.subject = channel.claims.subject.copied()
            note.reason = Array(Self.sentence(reason, channel).utf8)
        }
        if !isNoted { recorder.missKnown() }
    }

    /// Returns the reason as people read it. It contains no row data.
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

    /// Notes the end of a page, if it had begun. An empty page is not noted, because a client may ask once a second.
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

    /// Notes a refused socket, join or request, if a signed token names its holder. The same refusal is not noted again
    /// for a while. `topic` is empty for a socket.
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

    /// Returns the offset up to which everything was sent to the channel.
    func sentForLedger(_ channel: Channel) -> UInt64? {
        switch channel.recipient {
        case .client: home.returns.sentOffset(of: channel)
        case .feed: home.feeds.offset(of: channel)
        }
    }

    /// Records a note about the channel. Returns false if the log has no room for it.
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

    func number(of session: Session) -> UInt64 {
        if session.ledgerNumber == 0 { session.ledgerNumber = recorder.number(at: loop.time.unixMicroseconds()) }
        assert(
            session.ledgerNumber & LedgerNote.loopBits == recorder.loop, "a session's number names its own loop")
        return session.ledgerNumber
    }

    /// Adds to the note what the channel may receive of a private topic.
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

/// Record of each delivery, for ledgers that keep them all (`ledger = full`). The followers note the receivers of each
/// change by seat. The loop writes these down at a turn's end, and hands them to the log in blocks.
extension LoopLedger {
    /// Returns the number under which deliveries to the channel are recorded. No other channel gets it before this one
    /// has ended.
    func seat(of channel: Channel) -> UInt32 {
        guard recordsEach else { return Recipient.unrecorded }
        if let known = channel.ledger.seat { return known }
        let seat = recorder.seat(session: number(of: channel.session), channel: channel.id.incarnation)
        channel.ledger.seat = seat
        return seat
    }

    /// True if the ledger records each delivery.
    var recordsEach: Bool { project.ledger?.keeps(.delivered) == true }

    /// Records that a database message was sent to these channels.
    func recordSent(message offset: UInt64, to members: some Sequence<UInt32>) {
        guard recordsEach else { return }
        let seats = members.compactMap { home.channels[$0].map(seat(of:)) }
        guard !seats.isEmpty else { return }
        recorder.beginTurn(at: loop.time.unixMicroseconds(), changes: 1)
        recorder.deliver(offset, to: seats.span)
        timeSentRecord()
    }

    /// Hands the channel's deliveries over and frees its seat. The caller does this before it notes the channel's end:
    /// readers of that note may assume that no delivery is missing.
    func leaveSeat(of channel: Channel) {
        guard let seat = channel.ledger.seat else { return }
        recordSent()
        handSentRecordOver()
        recorder.leave(seat)
        channel.ledger.seat = nil
    }

    /// Records the deliveries since the last call.
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

/// Numbers of notes for which the log had no room, until a note says so.
struct MissedNotes {
    /// Missing notes about channels that the ledger knows.
    var ofKnown: UInt64 = 0
    /// Missing channels and requests that the ledger does not know at all.
    var strangers: UInt64 = 0
    /// Number of times that notes about known channels were missed. After each, all present channels are noted again.
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
    /// Bindings in the form in which clients write them.
    var bindingsForLedger: [UInt8] { listedBindings { $0 } }

    /// Bindings as clients write them, with the values of filters masked. The ledger shows such values masked too.
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
            json.append("}")
        }
        json.append("]")
        return json.count <= Limits.maximumLedgerTextBytes ? json.copied() : []
    }
}
