//! Which addresses of a block follow from each other: what is known of registers without seeing their contents.
//!
//! Each register is an unknown value plus a constant. What only adds a constant, or copies a register, changes the
//! constant; whatever else writes a register makes it a new unknown. Two addresses with the same unknowns differ by a
//! constant, so that one callback gives both.

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register, UsedMemory};
use terrace_protocol::entry::{Base, Entry, Expected, REGISTERS, RUN, RUN_RECORDS, shape};

/// An unknown value plus a constant, modulo 2⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    /// Numbered as they come; 0 for a constant.
    unknown: u32,
    constant: u64,
}

impl Value {
    const fn constant(constant: u64) -> Value {
        Value { unknown: 0, constant }
    }

    fn plus(self, more: u64) -> Value {
        Value { constant: self.constant.wrapping_add(more), ..self }
    }
}

/// The unknown part of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    segment: Register,
    base: u32,
    index: u32,
    scale: u32,
}

impl Terms {
    const NONE: Terms = Terms { segment: Register::None, base: 0, index: 0, scale: 0 };
}

/// What a block's addresses are known to be, instruction by instruction.
pub struct Addresses {
    registers: [Value; REGISTERS],
    unknowns: u32,
    /// The anchors of the run: what their addresses are made of, and the first record of each.
    anchors: Vec<(Terms, u64, u8)>,
    /// Records and accesses of the run.
    records: usize,
    accesses: usize,
}

impl Addresses {
    /// At the start of a block.
    pub fn new() -> Addresses {
        Addresses {
            registers: std::array::from_fn(|register| Value { unknown: register as u32 + 1, constant: 0 }),
            unknowns: REGISTERS as u32,
            anchors: Vec::new(),
            records: 0,
            accesses: 0,
        }
    }

    /// The run ends: what comes has no anchors yet.
    pub fn end_run(&mut self) {
        self.anchors.clear();
        (self.records, self.accesses) = (0, 0);
    }

    /// Sets where the address of an instruction's entry comes from, and of one that loads and stores the same, that one
    /// record is enough.
    pub fn learn(&mut self, instruction: &Instruction, info: &InstructionInfo, entry: &mut Entry) {
        let [memory] = info.used_memory() else { return self.end_run() };
        let is_update = memory.access() == OpAccess::ReadWrite && entry.callbacks == 2;
        if !is_plain(instruction) || (entry.shape == shape::OTHER && !is_update) {
            return self.end_run();
        }
        if is_update {
            entry.shape = shape::UPDATE;
            entry.callbacks = 1;
            let size = memory.memory_size().size() as u8;
            entry.expected = Expected::update(size);
        }
        let (records, accesses) = (usize::from(entry.callbacks), if is_update { 2 } else { 1 });
        let sum = self.sum(memory);
        if self.records + records > RUN_RECORDS || self.accesses + accesses > RUN {
            self.end_run();
        }
        self.accesses += accesses;
        if !is_atomic(instruction)
            && let Some(derived) = sum.and_then(|sum| self.derived(sum))
        {
            (entry.base, entry.callbacks) = (derived, 0);
            return;
        }
        let slot = self.records as u8;
        entry.base = Base::new(slot, 0);
        if self.records == 0 {
            entry.base = entry.base.beginning();
        }
        if let Some((terms, constant)) = sum {
            self.anchors.push((terms, constant, slot));
        }
        self.records += records;
    }

    fn derived(&self, (terms, constant): (Terms, u64)) -> Option<Base> {
        // A run begins with a record.
        if self.records > 0 && terms == Terms::NONE {
            return Some(Base::new(Base::CONSTANT, constant));
        }
        let (_, anchor, slot) = self.anchors.iter().find(|(other, ..)| *other == terms)?;
        Some(Base::new(*slot, constant.wrapping_sub(*anchor)))
    }

    /// An address as unknowns and a constant.
    fn sum(&self, memory: &UsedMemory) -> Option<(Terms, u64)> {
        let term = |register: Register| match register {
            Register::None => Some(Value::constant(0)),
            _ => self.value(register),
        };
        let base = term(memory.base())?;
        let index = term(memory.index())?;
        let constant = (memory.displacement().wrapping_add(base.constant))
            .wrapping_add(index.constant.wrapping_mul(memory.scale() as u64));
        // Only these two segments begin elsewhere than at 0.
        let segment = match memory.segment() {
            segment @ (Register::FS | Register::GS) => segment,
            _ => Register::None,
        };
        let scale = if index.unknown == 0 { 0 } else { memory.scale() };
        Some((Terms { segment, base: base.unknown, index: index.unknown, scale }, constant))
    }

    /// The value of a 64-bit register.
    fn value(&self, register: Register) -> Option<Value> {
        register.is_gpr64().then(|| self.registers[register.number()])
    }

    /// What an instruction does to registers.
    pub fn advance(&mut self, instruction: &Instruction, info: &InstructionInfo) {
        let known = self.result(instruction);
        let stack = self.registers[Register::RSP.number()];
        for used in info.used_registers() {
            let register = used.register();
            if !writes(used.access()) {
                continue;
            }
            if register.is_segment_register() {
                self.end_run();
            }
            if register.is_gpr() {
                self.unknowns += 1;
                self.registers[register.full_register().number()] =
                    Value { unknown: self.unknowns, constant: 0 };
            }
        }
        if matches!(instruction.mnemonic(), Mnemonic::Wrfsbase | Mnemonic::Wrgsbase) {
            self.end_run();
        }
        // A value popped into the stack pointer stays unknown.
        let moves_stack =
            matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pop | Mnemonic::Call | Mnemonic::Ret)
                && !(instruction.op0_kind() == OpKind::Register
                    && instruction.op0_register() == Register::RSP);
        if moves_stack {
            self.registers[Register::RSP.number()] =
                stack.plus(i64::from(instruction.stack_pointer_increment()) as u64);
        }
        if let Some((register, value)) = known {
            self.registers[register.number()] = value;
        }
    }

    /// The register that an instruction writes and its new value, where that is known.
    fn result(&self, instruction: &Instruction) -> Option<(Register, Value)> {
        let target = instruction.op0_register();
        if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::Register {
            return None;
        }
        let immediate = || -> Option<u64> {
            match instruction.op1_kind() {
                OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
                    Some(instruction.immediate(1))
                }
                _ => None,
            }
        };
        if instruction.mnemonic() == Mnemonic::Mov
            && target.is_gpr32()
            && instruction.op1_kind() == OpKind::Immediate32
        {
            return Some((target.full_register(), Value::constant(u64::from(instruction.immediate32()))));
        }
        let own = self.value(target)?;
        let value = match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                self.value(instruction.op1_register())?
            }
            Mnemonic::Mov => Value::constant(immediate()?),
            Mnemonic::Add => own.plus(immediate()?),
            Mnemonic::Sub => own.plus(immediate()?.wrapping_neg()),
            Mnemonic::Inc => own.plus(1),
            Mnemonic::Dec => own.plus(1u64.wrapping_neg()),
            Mnemonic::Lea => self.address(instruction)?,
            _ => return None,
        };
        Some((target, value))
    }

    /// What `lea` computes, where it adds no more than a constant to one register.
    fn address(&self, instruction: &Instruction) -> Option<Value> {
        let displacement = instruction.memory_displacement64();
        match (instruction.memory_base(), instruction.memory_index()) {
            // The decoder has added the instruction's own address.
            (Register::RIP | Register::None, Register::None) => Some(Value::constant(displacement)),
            (base, Register::None) => Some(self.value(base)?.plus(displacement)),
            _ => None,
        }
    }
}

/// Whether something is written by such an access, or may be.
pub fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite)
}

/// Whether QEMU may leave the access to a function of its own. If such an access has no callback, QEMU 7.2 calls the one of
/// the last instruction before that had.
fn is_atomic(instruction: &Instruction) -> bool {
    instruction.has_lock_prefix() || matches!(instruction.mnemonic(), Mnemonic::Xchg | Mnemonic::Xadd)
}

/// Whether QEMU is known to touch exactly the memory that the decoder says, in the parts in which it says it, whatever the
/// data are. Of others every access is asked for.
fn is_plain(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    #[rustfmt::skip]
    let is_known = matches!(
        instruction.mnemonic(),
        Mov | Movzx | Movsx | Movsxd | Movbe | Push | Pop | Call | Ret | Jmp | Leave | Xchg | Xadd
            | Add | Sub | Adc | Sbb | And | Or | Xor | Cmp | Test | Inc | Dec | Neg | Not | Mul | Imul
            | Bsf | Bsr | Tzcnt | Lzcnt | Popcnt
            | Cmova | Cmovae | Cmovb | Cmovbe | Cmove | Cmovne | Cmovg | Cmovge | Cmovl | Cmovle
            | Cmovs | Cmovns | Cmovo | Cmovno | Cmovp | Cmovnp
            | Movd | Movq | Movss | Movlps | Movhps | Movlpd | Movhpd
            | Movaps | Movups | Movapd | Movupd | Movdqa | Movdqu
            | Addss | Addsd | Subss | Subsd | Mulss | Mulsd | Divss | Divsd | Minss | Minsd | Maxss | Maxsd
            | Ucomiss | Ucomisd | Comiss | Comisd | Sqrtss | Sqrtsd
            | Cvtsi2ss | Cvtsi2sd | Cvtss2sd | Cvtsd2ss | Cvttss2si | Cvttsd2si
            | Addps | Addpd | Subps | Subpd | Mulps | Mulpd | Divps | Divpd
            | Andps | Andpd | Orps | Orpd | Xorps | Xorpd
            | Pand | Pandn | Por | Pxor | Paddb | Paddw | Paddd | Paddq | Psubb | Psubw | Psubd | Psubq
            | Pcmpeqb | Pcmpeqw | Pcmpeqd | Pcmpgtb | Pcmpgtd | Pminub | Pmaxub | Pshufd | Pshufb
            | Vmovd | Vmovq | Vmovaps | Vmovups | Vmovapd | Vmovupd | Vmovdqa | Vmovdqu
            | Vpand | Vpandn | Vpor | Vpxor | Vpcmpeqb | Vpcmpeqd | Vpminub | Vpsubb | Vpaddb
    )
        // One of the two instructions of this name is a string instruction.
        || (instruction.mnemonic() == Movsd && !instruction.is_string_instruction());
    // With several threads QEMU tries this one until it succeeds.
    let is_retried = instruction.has_lock_prefix() && instruction.mnemonic() == Neg;
    is_known && !is_retried
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    /// For each instruction that touches memory whether it is derived, and its slot and distance.
    fn found(code: &[u8]) -> Vec<(bool, usize, i64)> {
        let mut factory = InstructionInfoFactory::new();
        let mut addresses = Addresses::new();
        let mut found = Vec::new();
        for instruction in Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).iter() {
            let info = factory.info(&instruction);
            if let Some(memory) = info.used_memory().first()
                && memory.access() != OpAccess::NoMemAccess
            {
                let mut entry = Entry { callbacks: 1, shape: shape::ONE, ..Entry::UNKNOWN };
                addresses.learn(&instruction, info, &mut entry);
                // 48 bits with a sign.
                let distance = ((entry.base.distance() << 16) as i64) >> 16;
                found.push((entry.is_derived(), entry.base.slot(), distance));
            }
            addresses.advance(&instruction, info);
        }
        found
    }

    #[test]
    fn fields_of_one_object_follow_from_the_first() {
        // mov rax, [rbx+8]; mov [rbx+16], rax; add rbx, 32; mov ecx, [rbx]; mov rbx, [rbx+8]; mov rdx, [rbx]
        let code = [
            0x48, 0x8b, 0x43, 0x08, 0x48, 0x89, 0x43, 0x10, 0x48, 0x83, 0xc3, 0x20, 0x8b, 0x0b, 0x48, 0x8b,
            0x5b, 0x08, 0x48, 0x8b, 0x13,
        ];
        let expected = [(false, 0, 0), (true, 0, 8), (true, 0, 24), (true, 0, 32), (false, 1, 0)];
        assert_eq!(found(&code), expected);
    }

    #[test]
    fn the_stack_pointer_is_followed() {
        // push rbp; push rbx; sub rsp, 24; mov [rsp+8], rdi; mov rbp, rsp; mov [rbp+16], rsi; add rsp, 24; pop rbx; pop rbp;
        // ret
        let code = [
            0x55, 0x53, 0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x7c, 0x24, 0x08, 0x48, 0x89, 0xe5, 0x48, 0x89,
            0x75, 0x10, 0x48, 0x83, 0xc4, 0x18, 0x5b, 0x5d, 0xc3,
        ];
        let expected = [
            (false, 0, 0),
            (true, 0, -8),
            (true, 0, -24),
            (true, 0, -16),
            (true, 0, -8),
            (true, 0, 0),
            (true, 0, 8),
        ];
        assert_eq!(found(&code), expected);
    }

    #[test]
    fn indices_count_with_their_scale() {
        // mov rax, [rbx+rcx*8]; inc rcx; mov rdx, [rbx+rcx*8+1]; mov rdx, [rbx+rcx*4]; xor ecx, ecx; mov rdx, [rbx+rcx*8]
        let code = [
            0x48, 0x8b, 0x04, 0xcb, 0x48, 0xff, 0xc1, 0x48, 0x8b, 0x54, 0xcb, 0x01, 0x48, 0x8b, 0x14, 0x8b,
            0x31, 0xc9, 0x48, 0x8b, 0x14, 0xcb,
        ];
        assert_eq!(found(&code), [(false, 0, 0), (true, 0, 9), (false, 1, 0), (false, 2, 0)]);
    }

    #[test]
    fn constants_need_an_anchor_only_at_the_start() {
        // mov rax, [rip+0x10] (at 0x1000, 7 bytes); lea rcx, [rip+0x20] (at 0x1007); mov rdx, [rcx+8]; mov fs:[0x28] to rax
        let code = [
            0x48, 0x8b, 0x05, 0x10, 0, 0, 0, 0x48, 0x8d, 0x0d, 0x20, 0, 0, 0, 0x48, 0x8b, 0x51, 0x08, 0x64,
            0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0,
        ];
        let constant = usize::from(Base::CONSTANT);
        assert_eq!(found(&code), [(false, 0, 0), (true, constant, 0x1000 + 14 + 0x20 + 8), (false, 1, 0)]);
    }

    #[test]
    fn part_of_a_register_is_a_new_value() {
        // mov rax, [rbx]; mov bl, 1; mov rax, [rbx]; mov ebx, ebx; mov rax, [rbx]; pop rsp; pop rax
        let code = [0x48, 0x8b, 0x03, 0xb3, 0x01, 0x48, 0x8b, 0x03, 0x89, 0xdb, 0x48, 0x8b, 0x03, 0x5c, 0x58];
        let expected = [(false, 0, 0), (false, 1, 0), (false, 2, 0), (false, 3, 0), (false, 4, 0)];
        assert_eq!(found(&code), expected);
    }

    #[test]
    fn atomic_accesses_have_a_record_always() {
        // mov eax, [rbx]; lock add [rbx], eax; xchg [rbx], eax; mov ecx, [rbx]
        let code = [0x8b, 0x03, 0xf0, 0x01, 0x03, 0x87, 0x03, 0x8b, 0x0b];
        assert_eq!(found(&code), [(false, 0, 0), (false, 1, 0), (false, 2, 0), (true, 0, 0)]);
    }

    #[test]
    fn a_run_has_room_for_eight() {
        // mov eax, [rbx] ten times.
        let code = [0x8b, 0x03].repeat(10);
        let own: Vec<usize> = (0..10).filter(|&i| !found(&code)[i].0).collect();
        assert_eq!(own, [0, 8]);
    }
}
